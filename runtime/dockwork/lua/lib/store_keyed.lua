--- @include "record_key"
--- @include "tally"
--- @include "read_limits"
--- @include "read_options"
--- @include "check_job"
--- @include "check_keys"
--- @include "find_holder"
--- @include "write_keyed"
--- @include "finish"
--- @include "count_refusals"
-- `store_jobs` for a batch in which a job has a unique or an idempotency key: a known key decides before the limits do.
-- A job that takes the place of one that waits keeps that one's id.
local function store_keyed(K, S, jobs)
  local L = read_limits(K, S)
  local B = {jobs = {}, locks = {}, used = {}}
  local reply, taken, texts = {"ok"}, {}, {}
  for i = 1, #jobs do
    local job = jobs[i]
    local known = B.jobs[job.id] and B.jobs[job.id].state or redis.call("HGET", record_key(K.records, job.id), "s")
    job.set = read_options(job.options)
    local said = known and "=" .. known or check_keys(K, job, B)
    if said then
      local reason = string.match(said, "^!([%a_]+)")
      if reason then tally(S.stats, "rejected:" .. reason, 1) end
    else
      local old = job.holder and find_holder(K, S, job.holder)
      if old then
        -- No job more: it may not fail for being one too many.
        L.depth, S.bytes = L.depth - 1, S.bytes - old.bytes
      end
      said = check_job(S, L, job)
      if said and old then
        L.depth, S.bytes = L.depth + 1, S.bytes + old.bytes
      elseif not said then
        said = job.state
        if old then
          job.id, job.old, job.reason = old.id, old, job.keeps_place and "replaced" or "debounced"
          if job.keeps_place then
            job.seq, job.due = old.seq, old.due
            job.state = (job.due > S.ms and "delayed") or (job.priority ~= 0 and "prioritized") or "ready"
          end
          said = "~" .. job.state .. "=" .. job.id .. "=" .. job.reason
        end
        job.key = record_key(K.records, job.id)
        taken[#taken + 1] = job
        texts[#texts + 1], texts[#texts + 2] = record_key(K.envelopes, job.id), job.envelope
        B.jobs[job.id] = job
        if job.lock then
          B.locks[job.lock.hash] = {id = job.id, letter = job.lock.letter}
        end
        if job.idem then
          job.idem.value = job.idem.digest .. " " .. job.id
          B.used[job.idem.hash] = job.idem.value
        end
      end
    end
    reply[i + 1] = said
  end
  if #taken > 0 then
    redis.call("MSET", unpack(texts))
    S.wrote = true
    write_keyed(K, S, taken)
    finish(K, S)
  else
    count_refusals(K, S)
  end
  return reply
end
