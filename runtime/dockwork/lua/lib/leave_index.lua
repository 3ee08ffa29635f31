--- @include "record_key"
--- @include "unpark"
--- @include "leave_key"
--- @include "unhold"
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
  if S.keyed and (state == "ready" or state == "prioritized") then
    if there then
      leave_key(S, id, "waiting")
    else
      local key = redis.call("HGET", record_key(K.records, id), "k")
      there = key and unhold(S, id, key)
    end
  end
  if there and state == "parked" then
    unpark(K, S, parked_type, 1)
  end
  return there
end
