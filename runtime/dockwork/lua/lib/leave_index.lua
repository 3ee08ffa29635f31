--- @include "record_key"
--- @include "unpark"
-- Takes a waiting job out of the index of its state. Answers whether it was there.
local function leave_index(K, S, id, state, parked_type)
  local index = K.ready
  if state == "prioritized" then
    index = K.prio
  elseif state == "delayed" then
    index = K.delayed
  elseif state == "parked" then
    index = record_key(K.parked_types, parked_type)
  end
  local there = redis.call("ZREM", index, id) == 1
  S.wrote = true
  if there and state == "parked" then
    unpark(K, S, parked_type, 1)
  end
  return there
end
