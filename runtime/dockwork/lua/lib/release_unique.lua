--- @include "record_key"
-- Gives up the lock of a job, `u` of its record (a letter, then the key's hash), unless another job has it by now.
local function release_unique(K, id, u)
  local key = record_key(K.unique, string.sub(u, 2))
  if redis.call("GET", key) == string.sub(u, 1, 1) .. id then
    redis.call("DEL", key)
  end
end
