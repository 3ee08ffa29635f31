--- @include "whole"
--- @include "next_instant"
-- Writes what the ledger says of a schedule and files it under its next instant. The first of all schedules has
-- a marker of its own: it wakes one waiting worker, which then sets a timer for that instant.
local function write_schedule(K, uid, state, entry)
  redis.call("HSET", K.cron, uid, cjson.encode(state))
  local first = next_instant(K, uid, state, entry)
  if first then
    redis.call("ZADD", K.cron_at, whole(first), uid)
  else
    redis.call("ZREM", K.cron_at, uid)
  end
  local head = redis.call("ZRANGE", K.cron_at, 0, 0, "WITHSCORES")
  if head[2] then
    redis.call("ZADD", K.wake, head[2], "cron")
  else
    redis.call("ZREM", K.wake, "cron")
  end
  return first
end
