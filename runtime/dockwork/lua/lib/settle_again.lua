--- @include "whole"
--- @include "tally"
--- @include "tally_type"
--- @include "postpone"
-- The job runs again after a delay: a failed attempt (retry), or a snooze, which charges nothing.
local function settle_again(K, S, J)
  local R = J.record
  local due = S.ms + (tonumber(J.L) or 0)
  redis.call("HDEL", J.key, "w", "t", "r", "x")
  if J.outcome == "r" then
    redis.call("HSET", J.key, "s", "delayed", "d", whole(due), "f", whole((tonumber(R[6]) or 0) + 1), "m",
      "1")
    tally(S.stats, "retried", 1)
    tally_type(S, R[3], "r", 1)
  else
    redis.call("HSET", J.key, "s", "delayed", "d", whole(due), "v", whole((tonumber(R[7]) or 1) - 1), "m",
      "1")
    tally(S.stats, "snoozed", 1)
  end
  if J.o then
    redis.call("HSET", J.key, "o", "1")
  end
  postpone(S, J.id, due, tonumber(R[5]) or 0, J.outcome == "r" and "retry" or "snooze")
end
