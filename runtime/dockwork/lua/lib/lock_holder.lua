--- @include "record_key"
-- Who holds the lock of a unique key: {id, letter, state}, or nothing. A lock whose job is gone, has ended or has
-- another lock by now is void; not one by time (`t`), whose state may be false.
local function lock_holder(K, hash)
  local stored = redis.call("GET", record_key(K.unique, hash))
  if not stored then
    return
  end
  local letter, id = string.sub(stored, 1, 1), string.sub(stored, 2)
  local R = redis.call("HMGET", record_key(K.records, id), "s", "u")
  if letter ~= "t" then
    local ended = {completed = true, failed = true, dead = true, expired = true, cancelled = true}
    if not R[1] or ended[R[1]] or R[2] ~= letter .. hash then
      return
    end
  end
  return {id = id, letter = letter, state = R[1]}
end
