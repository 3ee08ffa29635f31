--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "tally_type"
--- @include "postpone"
-- A run of a job that repeats ended, well or with its retries used up: it waits for its next time with fresh
-- counters. What the run returned stays to be looked at, until the next one's.
local function settle_repeat(K, S, J)
  local R = J.record
  local due = tonumber(J.N)
  if due == 0 then
    due = S.ms + (tonumber(J.L) or 0)
  end
  redis.call("HDEL", J.key, "w", "t", "r", "x", "f", "v")
  redis.call("HSET", J.key, "s", "delayed", "d", whole(due), "sf", whole(due), "rn", whole((tonumber(R[15]) or 0) + 1), "m", "1")
  local outputs = record_key(K.outputs, J.id)
  redis.call("HDEL", outputs, "checkpoint", "progress")
  if J.R then
    redis.call("HSET", outputs, "result", J.R)
    J.o = true
  elseif J.outcome == "c" then
    redis.call("HDEL", outputs, "result")
  end
  if J.o then
    redis.call("HSET", J.key, "o", "1")
  end
  tally(S.stats, "repeated", 1)
  tally_type(S, R[3], J.outcome, 1)
  postpone(S, J.id, due, tonumber(R[5]) or 0, "repeat")
end
