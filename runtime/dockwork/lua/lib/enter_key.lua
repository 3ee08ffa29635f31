--- @include "record_key"
--- @include "key_state"
--- @include "hold_back"
-- Whether a job may wait among those that can be claimed. One whose concurrency key has enough of them, running or
-- claimable, waits aside instead; an urgent one (a priority below 0) only while enough of them run.
local function enter_key(S, id, priority, score)
  local found = redis.call("HMGET", record_key(S.K.records, id), "k", "kl")
  if not found[1] then
    return true
  end
  local state, limit = key_state(S, found[1]), tonumber(found[2]) or S.per_key
  if state.running + (priority < 0 and 0 or state.waiting) < limit then
    state.waiting = state.waiting + 1
    return true
  end
  hold_back(S, id, found[1], score)
  return false
end
