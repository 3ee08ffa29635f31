--- @include "record_key"
--- @include "end_job"
--- @include "release_unique"
-- Ends a job in an index that keeps its envelope: dead, failed, expired or cancelled. The caller has taken it
-- out of the index it was in.
local function to_dead(K, S, id, state, reason, bytes, extra)
  local key = record_key(K.records, id)
  local lock = S.unique and redis.call("HGET", key, "u")
  if lock then
    release_unique(K, id, lock)
  end
  redis.call("HSET", key, "s", state, "h", S.now, "kb", whole(bytes), "rs", reason)
  if extra then
    redis.call("HSET", key, unpack(extra))
  end
  end_job(S, id, state, reason, bytes, bytes)
end
