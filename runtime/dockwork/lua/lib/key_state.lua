-- How many jobs of one concurrency key run, and how many of them may be claimed; `write_limits` stores what changed.
local function key_state(S, key)
  local state = S.keys[key]
  if not state then
    local stored = redis.call("HGET", S.K.key_counts, key)
    local running, waiting
    if stored then
      running, waiting = string.match(stored, "^(%d+) (%d+)$")
    end
    state = {running = tonumber(running) or 0, waiting = tonumber(waiting) or 0}
    S.keys[key] = state
  end
  return state
end
