--- @include "whole"
--- @include "record_key"
--- @include "open"
--- @include "read_schedule"
--- @include "write_schedule"
--- @include "due_instants"
--- @include "choose_ticks"
--- @include "unfinished_ticks"
--- @include "admit_ticks"
--- @include "count_tick"
--- @include "trim_ledger"
-- Decides the due instants of one schedule: enqueues their jobs and moves the cursor. Answers the decided ticks.
-- An entry that no operator has refreshed for 7 days stops: nobody knows whether its CronJob still exists. What code
-- declared lasts until it is removed.
local function tick_schedule(K, uid, by)
  local state, entry = read_schedule(K, uid)
  local S = open(K)
  if S.wrong then
    return {}
  end
  if not state or state.suspended or (not entry.lasting and S.ms - state.refreshed > 604800000) then
    redis.call("ZREM", K.cron_at, uid)
    return {}
  end
  local due, older = due_instants(K, uid, state, entry, S.ms)
  if #due == 0 or (entry.max_runs and state.runs >= entry.max_runs) then
    local filed = tonumber(redis.call("ZSCORE", K.cron_at, uid) or math.huge)
    if filed <= S.ms then
      write_schedule(K, uid, state, entry)
    end
    return {}
  end
  local chosen = choose_ticks(state, entry, due, S.ms)
  if not entry.every_ms and not chosen[1].fresh and state.planned_to < S.ms then
    -- Nobody was there for so long that the plan ran out. Which missed instant is the latest is known only when
    -- the plan reaches the present again; whoever refills it files the schedule anew.
    redis.call("ZADD", K.cron_at, whole(S.ms + 5000), uid)
    return {}
  end
  local ids, waiting = unfinished_ticks(K, state)
  admit_ticks(K, S, uid, state, entry, chosen, ids, waiting)

  local decided = {}
  if older > 0 then
    local reason = S.ms - due[1] > (entry.deadline_ms or math.huge) and "Deadline" or "Policy"
    count_tick(state, {at = due[1], outcome = "missed", reason = reason}, S.ms, by)
    state.missed = state.missed + older - 1
    state.missed_by[reason] = state.missed_by[reason] + older - 1
  end
  for i = 1, #chosen do
    local tick = chosen[i]
    if not tick.outcome and not (entry.max_runs and state.runs >= entry.max_runs) then
      tick.outcome = "missed"
    end
    if tick.outcome then
      count_tick(state, tick, S.ms, by)
      decided[#decided + 1] = tick
    end
    if tick.outcome == "fired" or tick.outcome == "already" then
      ids[#ids + 1] = tick.id
      redis.call("ZADD", K.tick, "0", uid .. ":" .. whole(tick.at))
    end
  end
  -- Never past the last planned instant: what lies beyond is undecided until the plan goes on.
  state.cursor = entry.every_ms and S.ms or math.max(state.cursor, math.min(S.ms, state.planned_to))
  state.active = table.concat(ids, " ", math.max(1, #ids - 999))
  write_schedule(K, uid, state, entry)
  redis.call("ZREMRANGEBYSCORE", record_key(K.plans, uid), "-inf", whole(state.cursor))
  trim_ledger(K, uid, entry, S.ms)
  return decided
end
