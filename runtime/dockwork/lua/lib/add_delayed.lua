--- @include "whole"
--- @include "add_all"
-- Adds what was postponed to its index; a new first due time gets one marker, so that somebody sets a timer.
local function add_delayed(K, S)
  if #S.delayed == 0 then
    return
  end
  add_all(K.delayed, S.delayed)
  local first = redis.call("ZRANGE", K.delayed, 0, 0, "WITHSCORES")
  if math.floor(tonumber(first[2]) / 1024) >= S.due then
    redis.call("ZADD", K.wake, whole(S.due), "due")
  end
  S.due = nil
end
