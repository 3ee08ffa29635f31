--- @include "whole"
--- @include "tally"
--- @include "note"
--- @include "enter_key"
-- Marks a job to enter ready or prioritized at `seq`, or to wait aside while its concurrency key is full; answers the
-- state's name. Its record is written already. `reason` is the event's.
local function place(S, id, priority, seq, reason)
  local state, index, score = "ready", S.ready, seq
  if priority ~= 0 then
    state, index, score = "prioritized", S.prio, priority * 17592186044416 + seq
  end
  note(S, state, id, reason)
  if S.keyed and not enter_key(S, id, priority, score) then
    return state
  end
  index[#index + 1] = whole(score)
  index[#index + 1] = id
  S.claimable = S.claimable + 1
  tally(S.stats, "entered", 1)
  tally(S.minute, "a", 1)
  return state
end
