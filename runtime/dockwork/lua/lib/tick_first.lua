--- @include "open"
--- @include "tick_due"
-- Before a claim: lets due schedules tick, and takes the claimant's lease length over. By pcall, and before all
-- writes of the claim: a tick that a full Redis refuses stays undecided, and the claim goes on. Answers the
-- queue's state as it is then.
local function tick_first(K, S, W)
  -- Most queues have none of these, and then one question saves four.
  local none = redis.call("EXISTS", K.cron_at, K.prio, K.quiesce, K.cold) == 0
  local first = none and {} or redis.call("ZRANGE", K.cron_at, 0, 0, "WITHSCORES")
  local at = first[2] and tonumber(first[2])
  if at and at <= S.ms then
    pcall(tick_due, K, "worker")
    S = open(K)
    first = redis.call("ZRANGE", K.cron_at, 0, 0, "WITHSCORES")
    at = first[2] and tonumber(first[2])
  end
  S.next_tick, S.none = at or false, none
  if W.lease_ms > 0 then
    S.lease_ms = W.lease_ms
  end
  return S
end
