--- @include "add_all"
-- Adds the leases of a claim to their index. `ends`: when the first lease of all ends, false if there was none. An index
-- that starts small is a list to Redis, and each of 100 leases is found by walking it; one long member, gone at the end,
-- makes it a skip list from the start.
local function add_leases(K, T, ends)
  local long = not ends and T.count > 8 and string.rep("-", 65)
  if long then redis.call("ZADD", K.lease, "0", long) end
  add_all(K.lease, T.leases)
  if long then redis.call("ZREM", K.lease, long) end
end
