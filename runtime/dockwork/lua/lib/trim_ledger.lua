--- @include "whole"
-- Forgets decided ticks that are older than the deadline and a day, and all but the newest 2,000 of a schedule.
-- All scores are 0, so members lie in order: `<uid>:<13 digits>`.
local function trim_ledger(K, uid, entry, now)
  local from, to = "[" .. uid .. ":", "(" .. uid .. ";"
  local keep = math.max(entry.deadline_ms or 0, 86400000)
  redis.call("ZREMRANGEBYLEX", K.tick, from, "(" .. uid .. ":" .. whole(now - keep))
  local excess = redis.call("ZLEXCOUNT", K.tick, from, to) - 2000
  if excess > 0 then
    local last = redis.call("ZRANGEBYLEX", K.tick, from, to, "LIMIT", excess - 1, 1)[1]
    redis.call("ZREMRANGEBYLEX", K.tick, from, "[" .. last)
  end
end
