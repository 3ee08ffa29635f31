--- @include "whole"
--- @include "record_key"
-- The instants of a schedule in (cursor, now], rising, the newest 2,000; and how many older ones there are.
local function due_instants(K, uid, state, entry, now)
  local last = entry.until_ms and math.min(entry.until_ms, now) or now
  local due = {}
  if not entry.every_ms then
    local plan, after = record_key(K.plans, uid), "(" .. whole(state.cursor)
    local found = redis.call("ZREVRANGEBYSCORE", plan, whole(last), after, "LIMIT", 0, 2000)
    for i = #found, 1, -1 do
      due[#due + 1] = tonumber(found[i])
    end
    return due, #due == 2000 and redis.call("ZCOUNT", plan, after, whole(last)) - 2000 or 0
  end
  local first, final = math.floor(state.cursor / entry.every_ms) + 1, math.floor(last / entry.every_ms)
  local older = math.max(final - first + 1 - 2000, 0)
  for n = first + older, final do
    due[#due + 1] = n * entry.every_ms
  end
  return due, older
end
