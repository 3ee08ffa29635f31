--- @include "whole"
--- @include "record_key"
-- The first instant of a schedule that is not decided, false if it has none: suspended, finished, plan used up.
local function next_instant(K, uid, state, entry)
  if state.suspended or (entry.max_runs and state.runs >= entry.max_runs) then
    return false
  end
  local first
  if entry.every_ms then
    first = (math.floor(state.cursor / entry.every_ms) + 1) * entry.every_ms
  else
    local after = "(" .. whole(state.cursor)
    first = tonumber(redis.call("ZRANGEBYSCORE", record_key(K.plans, uid), after, "+inf", "LIMIT", 0, 1)[1])
  end
  if not first or (entry.until_ms and first > entry.until_ms) then
    return false
  end
  return first
end
