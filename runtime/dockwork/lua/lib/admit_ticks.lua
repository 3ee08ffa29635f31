--- @include "whole"
--- @include "record_key"
--- @include "store_jobs"
-- Enqueues the chosen ticks that nothing bars, and sets each tick's outcome, reason and id.
-- 1. One that is in the ledger, or whose job is there, is done.
-- 2. Forbid: none while a job of this schedule has not ended.
-- 3. maxPending: only so many may wait; missed ones that are caught up are bounded by max_catch_up instead.
-- 4. The queue decides like for any other job.
local function admit_ticks(K, S, uid, state, entry, chosen, ids, waiting)
  local jobs, admitted = {}, {}
  local envelope = redis.call("HGET", K.cron, uid .. ":env")
  for i = 1, #chosen do
    local tick = chosen[i]
    if tick.run and not (entry.max_runs and state.runs + #jobs >= entry.max_runs) then
      local at = whole(tick.at)
      tick.id = "cron-" .. uid .. "-" .. at
      local known = redis.call("HGET", record_key(K.records, tick.id), "s")
      if known or redis.call("ZSCORE", K.tick, uid .. ":" .. at) then
        tick.outcome, tick.reason = "already", nil
      elseif entry.concurrency == "Forbid" and #ids + #jobs > 0 then
        tick.outcome, tick.reason = "skipped", "StillRunning"
      elseif tick.fresh and entry.max_pending and waiting + #jobs >= entry.max_pending then
        tick.outcome, tick.reason = "skipped", "Pending"
      else
        local due = tick.at
        if entry.jitter_s then
          due = due + tonumber(string.sub(redis.sha1hex(uid .. ":" .. at), 1, 8), 16) % (entry.jitter_s + 1) * 1000
        end
        local options = entry.options .. "at=" .. whole(due) .. ";sf=" .. at .. ";"
        jobs[#jobs + 1] = {id = tick.id, type = entry.type, options = options, envelope = envelope}
        admitted[#admitted + 1] = tick
      end
    end
  end
  if #jobs > 0 then
    local reply = store_jobs(K, S, jobs)
    local words = {closed = "QueueClosed", depth = "QueueFull", bytes = "QueueFull", payload = "TooLarge",
      timeout = "TimeoutAboveQueueMax"}
    for i = 1, #admitted do
      local tick, refusal = admitted[i], string.match(reply[i + 1], "^!(%a+)")
      tick.outcome, tick.reason = refusal and "skipped" or "fired", refusal and words[refusal]
    end
  end
end
