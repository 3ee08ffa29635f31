--- @include "whole"
--- @include "record_key"
--- @include "digest_of"
--- @include "lock_holder"
--- @include "place"
--- @include "read_parts"
--- @include "note_keys"
-- Puts one ended job back with fresh counters, at the end of its queue, if it is as it was reviewed (`digest`, or "" for
-- whatever it is). Answers "ok", "conflicted" (changed, not ended badly, or its unique key is another's) or "missing".
-- `fresh`: values that another key seals now.
local function redrive_job(K, S, id, digest, fresh)
  local key, R = record_key(K.records, id), {}
  local record = redis.call("HGETALL", key)
  for i = 1, #record, 2 do
    R[record[i]] = record[i + 1]
  end
  local state = R.s
  if not state then
    return "missing"
  end
  local envelope = redis.call("GET", record_key(K.envelopes, id))
  local again = state == "dead" or state == "failed" or state == "cancelled" or state == "expired"
  if not again or not envelope or (digest ~= "" and digest ~= digest_of(record, envelope)) then
    return "conflicted"
  end
  if R.u then
    local holder = lock_holder(K, string.sub(R.u, 2))
    if holder and holder.id ~= id then
      return "conflicted"
    end
  end
  redis.call("ZREM", K[state], id)
  S.wrote = true
  if R.u then
    redis.call("SET", record_key(K.unique, string.sub(R.u, 2)), string.sub(R.u, 1, 1) .. id)
  end
  S.kept = math.max(0, S.kept - (tonumber(R.kb) or 0))
  if fresh.keys ~= "" then
    if fresh.envelope ~= "" then
      redis.call("SET", record_key(K.envelopes, id), fresh.envelope)
      R.b = whole(#fresh.envelope)
      redis.call("HSET", key, "b", R.b)
      redis.call("HINCRBY", key, "rv", "1")
    end
    if fresh.checkpoint ~= "" then
      redis.call("HSET", record_key(K.outputs, id), "checkpoint", fresh.checkpoint)
    end
    note_keys(K, key, R.z, read_parts(fresh.keys))
  end
  S.bytes = S.bytes + (tonumber(R.b) or #envelope)
  S.seq = S.seq + 1
  redis.call("HDEL", key, "h", "kb", "rs", "f", "v", "i", "t", "w", "cx", "x", "pt")
  redis.call("HSET", key, "q", whole(S.seq), "r", S.now, "m", "1")
  redis.call("HSET", key, "s", place(S, id, tonumber(R.p) or 0, S.seq, "redriven"))
  return "ok"
end
