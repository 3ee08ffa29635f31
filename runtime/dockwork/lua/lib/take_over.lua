--- @include "record_key"
--- @include "leave_index"
--- @include "release_unique"
--- @include "unseal"
-- Takes a waiting job out of its index and forgets all but its id, its epoch and its envelope, which is the new one
-- already: `write_job` then writes it anew.
local function take_over(K, S, job)
  local old = job.old
  leave_index(K, S, job.id, old.state, old.parked)
  if old.expires then
    redis.call("ZREM", K.expiry, job.id)
  end
  if old.lock and old.lock ~= job.u then
    release_unique(K, job.id, old.lock)
  end
  unseal(K, job.key, redis.call("HGET", job.key, "z"))
  redis.call("DEL", job.key, record_key(K.outputs, job.id))
end
