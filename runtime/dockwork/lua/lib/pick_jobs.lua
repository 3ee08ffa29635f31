--- @include "record_key"
-- The first `most` ids of whatever index has any, with that index; nothing once all are empty.
local function pick_jobs(K, most)
  local indexes = {K.ready, K.prio, K.delayed, K.lease, K.completed, K.failed, K.dead, K.expired, K.cancelled}
  for _, name in ipairs(redis.call("HKEYS", K.parked)) do
    indexes[#indexes + 1] = record_key(K.parked_types, name)
  end
  for _, key in ipairs(redis.call("HKEYS", K.held_keys)) do
    indexes[#indexes + 1] = record_key(K.held_jobs, key)
  end
  for i = 1, #indexes do
    local ids = redis.call("ZRANGE", indexes[i], 0, most - 1)
    if #ids > 0 then
      return ids, indexes[i]
    end
  end
end
