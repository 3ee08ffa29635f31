-- Enters one decided tick into what the ledger says of its schedule.
local function count_tick(state, tick, now, by)
  local outcome = tick.outcome
  if outcome == "fired" then
    state.runs = state.runs + 1
  elseif outcome == "missed" or outcome == "skipped" then
    state[outcome] = state[outcome] + 1
    local reasons = state[outcome .. "_by"] or {}
    reasons[tick.reason] = (reasons[tick.reason] or 0) + 1
    state[outcome .. "_by"] = reasons
    state["last_" .. outcome] = {at = tick.at, reason = tick.reason, decided = now}
  end
  if outcome ~= "already" then
    state.last = {at = tick.at, decided = now, id = tick.id or "", outcome = outcome, reason = tick.reason or "",
      by = by}
  end
end
