--- @include "whole"
--- @include "tally"
--- @include "note"
-- Marks a job to enter ready or prioritized at `seq`; answers the state's name. `reason` is the event's.
local function place(S, id, priority, seq, reason)
  local state, index, score = "ready", S.ready, seq
  if priority ~= 0 then
    state, index, score = "prioritized", S.prio, priority * 17592186044416 + seq
  end
  index[#index + 1] = whole(score)
  index[#index + 1] = id
  S.claimable = S.claimable + 1
  note(S, state, id, reason)
  tally(S.stats, "entered", 1)
  tally(S.minute, "a", 1)
  return state
end
