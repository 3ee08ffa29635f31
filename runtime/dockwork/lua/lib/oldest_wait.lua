--- @include "record_key"
-- The age in ms of the oldest due job that waits, as seen at the heads of the indexes: exact for plain FIFO,
-- and for prioritized jobs that of the first and the last in line.
local function oldest_wait(K, S)
  local heads = {}
  for _, key in ipairs({K.ready, K.prio}) do
    heads[#heads + 1] = redis.call("ZRANGE", key, 0, 0)[1]
  end
  heads[#heads + 1] = redis.call("ZRANGE", K.prio, -1, -1)[1]
  local oldest = S.ms
  for i = 1, #heads do
    local R = redis.call("HMGET", record_key(K.records, heads[i]), "r", "d", "c")
    oldest = math.min(oldest, tonumber(R[1] or R[2] or R[3] or S.ms))
  end
  local delayed = redis.call("ZRANGE", K.delayed, 0, 0, "WITHSCORES")
  if delayed[2] then
    oldest = math.min(oldest, math.floor(tonumber(delayed[2]) / 1024))
  end
  return S.ms - oldest
end
