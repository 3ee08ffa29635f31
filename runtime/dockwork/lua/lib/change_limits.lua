--- @include "load_limits"
--- @include "look_again"
-- After options were written: the flags say again what limits there are, and what a new limit may let through is looked
-- at. A rate forgets until when it let nothing start; its starts still count.
local function change_limits(K, S, waiting)
  local found = redis.call("HMGET", K.meta, "rate", "concurrency")
  local flags = string.gsub(S.flags or "", "[rc]", "") .. (found[1] and "r" or "") .. (found[2] and "c" or "")
  if flags ~= "" then
    redis.call("HSET", K.meta, "fl", flags)
  else
    redis.call("HDEL", K.meta, "fl")
  end
  redis.call("HDEL", K.meta, "thr", "thm")
  redis.call("ZREM", K.wake, "rate")
  if not found[1] then
    redis.call("UNLINK", K.rate)
  end
  S.rate = nil
  load_limits(K, S, flags)
  if S.keyed then
    look_again(K, S)
  end
  S.claimable = waiting
end
