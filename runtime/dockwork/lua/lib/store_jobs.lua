--- @include "whole"
--- @include "record_key"
--- @include "read_limits"
--- @include "check_job"
--- @include "write_job"
--- @include "seal_new"
--- @include "finish"
--- @include "count_refusals"
-- Checks and stores `jobs` of {id, type, options, envelope}; answers {"ok", admission...}, in order.
-- The first write is an MSET, which maxmemory refuses: a full Redis takes nothing (RT-061).
local function store_jobs(K, S, jobs)
  local L = read_limits(K, S)
  local names = {}
  for i = 1, #jobs do
    names[i] = record_key(K.records, jobs[i].id)
  end
  local any_known = redis.call("EXISTS", unpack(names)) > 0
  local reply, taken, texts, seen = {"ok"}, {}, {}, {}
  for i = 1, #jobs do
    local job = jobs[i]
    local state = seen[job.id] or (any_known and redis.call("HGET", names[i], "s"))
    if state then
      reply[i + 1] = "=" .. state
    else
      local refusal = check_job(S, L, job)
      if refusal then
        reply[i + 1] = refusal
      else
        seen[job.id] = job.state
        reply[i + 1] = job.state
        job.key = names[i]
        taken[#taken + 1] = job
        texts[#texts + 1] = record_key(K.envelopes, job.id)
        texts[#texts + 1] = job.envelope
      end
    end
  end
  if #taken > 0 then
    redis.call("MSET", unpack(texts))
    S.wrote = true
    S.stats.enqueued = #taken
    for i = 1, #taken do
      write_job(S, taken[i])
      seal_new(K, taken[i])
    end
    finish(K, S)
  else
    count_refusals(K, S)
  end
  return reply
end
