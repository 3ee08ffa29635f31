--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "tally_type"
--- @include "note"
--- @include "end_job"
--- @include "forget"
--- @include "keep_of"
--- @include "release_unique"
--- @include "reseal_run"
-- The handler returned. The envelope goes, the record and the result stay as long as they are kept.
local function settle_completed(K, S, J, C)
  local R, bytes = J.record, tonumber(J.record[4]) or 0
  if R[13] then
    release_unique(K, J.id, R[13])
  end
  tally_type(S, R[3], "c", 1)
  local keep = keep_of(K, S, C, R[10])
  if J.Z or R[16] then
    reseal_run(K, S, J, keep.none and "gone" or "completed")
  end
  if keep.none then
    forget(K, C.unlink, J.id)
    S.bytes = S.bytes - bytes
    note(S, "completed", J.id)
    tally(S.stats, "completed", 1)
    return
  end
  if R[12] or J.o then
    redis.call("HDEL", record_key(K.outputs, J.id), "checkpoint")
  end
  local size = 0
  if J.R then
    size = #J.R
    redis.call("HSET", record_key(K.outputs, J.id), "result", J.R)
    redis.call("HSET", J.key, "s", "completed", "t", J.started, "h", S.now, "kb", whole(size))
  else
    if R[15] then
      -- What an earlier run of a job that repeats returned is not this one's.
      redis.call("HDEL", record_key(K.outputs, J.id), "result")
    end
    if J.D then
      redis.call("HSET", record_key(K.outputs, J.id), "dropped", J.D)
    end
    redis.call("HSET", J.key, "s", "completed", "t", J.started, "h", S.now)
  end
  C.unlink[#C.unlink + 1] = record_key(K.envelopes, J.id)
  end_job(S, J.id, "completed", "", bytes, size, keep.shift)
end
