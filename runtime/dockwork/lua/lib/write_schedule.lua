--- @include "whole"
--- @include "next_instant"
-- Writes what the ledger says of a schedule and files it under its next instant. A marker of its own wakes
-- one waiting worker, which then sets a timer for that instant.
local function write_schedule(K, uid, state, entry)
  redis.call("HSET", K.cron, uid, cjson.encode(state))
  local first = next_instant(K, uid, state, entry)
  if first then
    redis.call("ZADD", K.cron_at, whole(first), uid)
    local known = redis.call("ZSCORE", K.wake, "cron")
    if not known or tonumber(known) > first then
      redis.call("ZADD", K.wake, whole(first), "cron")
    end
  else
    redis.call("ZREM", K.cron_at, uid)
  end
  return first
end
