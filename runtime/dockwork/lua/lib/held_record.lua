--- @include "record_key"
-- The record of a running job whose epoch still holds, as `put_back` takes it; nothing for any other, or for one that
-- `seen` has already.
local function held_record(K, id, epoch, seen)
  local R = redis.call("HMGET", record_key(K.records, id), "n", "p", "q", "v", "mv", "i", "w", "b", "x", "s", "f", "e")
  if R[12] == epoch and (R[10] == "active" or R[10] == "processing") and not seen[id] then
    seen[id] = true
    return R
  end
end
