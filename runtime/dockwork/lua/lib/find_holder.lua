--- @include "record_key"
-- The waiting job whose place a new one takes.
local function find_holder(K, S, id)
  local R = redis.call("HMGET", record_key(K.records, id), "s", "pt", "x", "u", "e", "b", "q", "d", "c")
  return {
    id = id, bytes = tonumber(R[6]) or 0, seq = tonumber(R[7]), due = tonumber(R[8] or R[9]) or S.ms,
    state = R[1], parked = R[2], expires = R[3], lock = R[4], epoch = R[5],
  }
end
