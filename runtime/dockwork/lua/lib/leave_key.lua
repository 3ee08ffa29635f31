--- @include "record_key"
--- @include "key_state"
-- A job leaves those of its concurrency key that count: `what` it was, "running" or "waiting". `free_keys` then lets
-- others in.
local function leave_key(S, id, what)
  local key = redis.call("HGET", record_key(S.K.records, id), "k")
  if key then
    local state = key_state(S, key)
    state[what] = math.max(state[what] - 1, 0)
    S.freed = S.freed or {}
    S.freed[key] = true
  end
end
