--- @include "barred"
-- Wakes min(number, 8) blocked workers; in a cold queue it tells the operator. Not while claims are barred.
-- By pcall: a login without the channel must not fail the script after its writes (RT-074).
local function post_markers(K, S, number)
  if number <= 0 or S.paused or S.held or (S.limits and barred(K, S)) then
    return
  end
  local markers = {}
  for i = 1, math.min(number, 8) do
    markers[2 * i - 1], markers[2 * i] = "0", tostring(i)
  end
  redis.call("ZADD", K.wake, unpack(markers))
  local channel = not S.none and redis.call("GET", K.cold)
  if channel then
    redis.call("DEL", K.cold)
    redis.pcall("PUBLISH", channel, "")
  end
end
