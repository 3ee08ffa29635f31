--- @include "record_key"
--- @include "tally"
--- @include "take_over"
--- @include "write_job"
--- @include "seal_new"
-- Writes the jobs of a keyed batch, each with its lock and its idempotency key.
local function write_keyed(K, S, taken)
  for i = 1, #taken do
    local job = taken[i]
    if job.old then
      take_over(K, S, job)
      tally(S.stats, job.reason, 1)
    else
      tally(S.stats, "enqueued", 1)
    end
    write_job(S, job)
    seal_new(K, job)
    if job.old and job.old.epoch then
      redis.call("HSET", job.key, "e", job.old.epoch)
    end
    local lock = job.lock
    if lock then
      local key = record_key(K.unique, lock.hash)
      if lock.letter == "t" then
        redis.call("SET", key, "t" .. job.id, "PX", lock.ttl)
      else
        redis.call("SET", key, lock.letter .. job.id)
        S.unique = S.unique or redis.call("HSET", K.meta, "uniq", "1")
      end
    end
    if job.idem then
      redis.call("SET", record_key(K.idempotency, job.idem.hash), job.idem.value, "PX", job.idem.ttl)
    end
  end
end
