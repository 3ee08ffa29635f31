--- @include "record_key"
--- @include "lock_holder"
-- Holds a new job against its idempotency key and its unique key. `B` is the batch so far: jobs by id, locks and
-- idempotency keys by hash. Answers the admission if the keys decide it, else nothing; then job.idem and job.lock
-- say what to write, and job.holder the job that waits and takes the new arguments over.
local function check_keys(K, job, B)
  local state_of = function(id)
    return B.jobs[id] and B.jobs[id].state or redis.call("HGET", record_key(K.records, id), "s") or "gone"
  end
  if job.set.ik then
    local ttl, digest, hash = string.match(job.set.ik, "^(%d+),(%w+),(%w+)$")
    local stored = B.used[hash] or redis.call("GET", record_key(K.idempotency, hash))
    if stored then
      local known, id = string.match(stored, "^(%w+) (.*)$")
      if known ~= digest then
        return "!key_reuse:0:0:" .. id
      end
      return "=" .. state_of(id) .. "=" .. id
    end
    job.idem = {hash = hash, digest = digest, ttl = ttl}
  end
  if not job.set.u then
    return
  end
  local letter, conflict, ttl, hash = string.match(job.set.u, "^(%l)(%l)(%d+),(%w+)$")
  local holder = B.locks[hash] or lock_holder(K, hash)
  if holder then
    local id = holder.id
    local state = state_of(id)
    if conflict == "k" then
      return "=" .. state .. "=" .. id
    end
    local waits = state == "ready" or state == "prioritized" or state == "delayed" or state == "parked"
    -- The client puts two jobs that would replace each other into two calls.
    if conflict == "j" or not waits or B.locks[hash] then
      return "!unique:0:0:" .. id
    end
    job.holder, job.keeps_place = id, conflict == "r"
  end
  -- Replacing leaves the lock as it is; debouncing begins the time of one by time anew.
  if not (job.keeps_place and holder.letter == letter) then
    job.lock = {hash = hash, letter = letter, ttl = ttl}
  end
  if letter ~= "t" then
    job.u = letter .. hash
  end
end
