--- @include "key_state"
-- A job with the concurrency key R.k is claimed: from those that wait, unless it was parked, to those that run.
local function start_key(S, R)
  local state = key_state(S, R.k)
  state.running = state.running + 1
  if R[15] ~= "parked" then
    state.waiting = math.max(state.waiting - 1, 0)
  end
end
