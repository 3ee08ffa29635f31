--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "leave_index"
--- @include "place"
--- @include "postpone"
--- @include "note_keys"
-- Changes a waiting job that the caller has found as it was reviewed. `R` is its fields s, pt, b, p, q, d, c, x; `set`
-- the change: p a priority, at or since a due time. The envelope is written already. Each edit raises `rv`.
local function edit_job(K, S, id, R, set, bytes, revision)
  local key, state, reason = record_key(K.records, id), R[1], "edited"
  local priority, was_due = tonumber(R[4]) or 0, tonumber(R[6] or R[7])
  local due = tonumber(set.at) or (set.since and S.ms + tonumber(set.since)) or nil
  if bytes then
    S.bytes = S.bytes + bytes - (tonumber(R[3]) or 0)
    redis.call("HSET", key, "b", whole(bytes))
    local ids = {}
    for sealed in string.gmatch(set.z or "", "[^,]+") do
      ids[#ids + 1] = sealed
    end
    note_keys(K, key, redis.call("HGET", key, "z"), {a = ids})
  end
  redis.call("HSET", key, "rv", whole(revision + 1), "m", "1")
  if set.p and tonumber(set.p) ~= priority then
    priority, reason = tonumber(set.p), "reprioritised"
    redis.call("HSET", key, "p", whole(priority))
  end
  if due and R[8] then
    -- It expires as long after its due time as before.
    local expires = whole(tonumber(R[8]) + due - was_due)
    redis.call("HSET", key, "x", expires)
    redis.call("ZADD", K.expiry, expires, id)
  end
  local stays = state == "parked" or state == "delayed"
  if due then
    leave_index(K, S, id, state, R[2])
    redis.call("HDEL", key, "r", "pt")
    redis.call("HSET", key, "d", whole(due))
    if due > S.ms then
      redis.call("HSET", key, "s", "delayed")
      postpone(S, id, due, tonumber(R[5]), "edited")
    else
      S.seq = S.seq + 1
      redis.call("HSET", key, "q", whole(S.seq))
      redis.call("HSET", key, "s", place(S, id, priority, S.seq, "edited"))
    end
  elseif reason == "reprioritised" and not stays then
    leave_index(K, S, id, state, R[2])
    redis.call("HSET", key, "s", place(S, id, priority, tonumber(R[5]), reason))
  end
  tally(S.stats, "edited", 1)
end
