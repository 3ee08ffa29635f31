--- @include "whole"
--- @include "tick_schedule"
-- Ticks the schedules that are due, at most 8. Answers {uid, ticks} each; a schedule that fails answers
-- {uid, {}, error} and is tried again a minute later, so that it never keeps the others from their ticks.
-- On a full Redis the first write is refused: the instants stay undecided, and nothing is lost.
local function tick_due(K, by)
  local time = redis.call("TIME")
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local uids = redis.call("ZRANGEBYSCORE", K.cron_at, "-inf", whole(now), "LIMIT", 0, 8)
  local ticked = {}
  for i = 1, #uids do
    local fine, found = pcall(tick_schedule, K, uids[i], by)
    if fine then
      ticked[i] = {uids[i], found}
    else
      ticked[i] = {uids[i], {}, type(found) == "table" and found.err or tostring(found)}
      redis.pcall("ZADD", K.cron_at, "XX", whole(now + 60000), uids[i])
    end
  end
  return ticked
end
