-- What the missed-run policy makes of due instants, rising: {at, run, fresh, reason} each.
-- Fresh ones always run: not older than a minute, or than the deadline if that is shorter. Older ones within the
-- deadline were missed: Skip runs none of them, Latest the newest if nothing is fresh, All the newest max_catch_up.
-- What a failover took back (up to state.lost) was decided once already: it is never fresh.
local function choose_ticks(state, entry, due, now)
  local deadline, lost = entry.deadline_ms or math.huge, state.lost or 0
  local chosen, fresh = {}, 0
  for i = 1, #due do
    local at = due[i]
    local tick = {at = at, fresh = now - at <= math.min(deadline, 60000) and at > lost}
    tick.run = tick.fresh
    if tick.fresh then
      fresh = fresh + 1
    elseif at <= lost then
      tick.reason = "RedisDataLost"
    else
      tick.reason = now - at > deadline and "Deadline" or "Policy"
    end
    chosen[i] = tick
  end
  local rest = 0
  if entry.missed == "All" then
    rest = entry.max_catch_up
  elseif entry.missed == "Latest" and fresh == 0 then
    rest = 1
  end
  for i = #chosen, 1, -1 do
    local tick = chosen[i]
    if rest > 0 and not tick.fresh and now - tick.at <= deadline then
      tick.run = true
      rest = rest - 1
    end
  end
  return chosen
end
