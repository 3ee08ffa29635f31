--- @include "key_state"
-- Whether as many jobs of this one's concurrency key run as may. Keeps the key in R.k, for `write_taken`.
local function key_full(S, R, key)
  local found = redis.call("HMGET", key, "k", "kl")
  R.k = found[1]
  return found[1] and key_state(S, found[1]).running >= (tonumber(found[2]) or S.per_key)
end
