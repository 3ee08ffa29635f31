--- @include "whole"
-- Takes `number` jobs off the count of one parked type.
local function unpark(K, S, name, number)
  S.parked = S.parked - number
  if redis.call("HINCRBY", K.parked, name, whole(-number)) <= 0 then
    redis.call("HDEL", K.parked, name)
  end
end
