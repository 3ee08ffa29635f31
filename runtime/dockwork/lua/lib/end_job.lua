--- @include "whole"
--- @include "tally"
--- @include "note"
-- Marks a job to enter an index of ended jobs. `size` is what of it stays: its envelope, or its result.
-- A keep of its own (`<age_ms>,<count>,<bytes>`, `forever`) moves it along the index, which trim reads by time.
local function end_job(S, id, state, reason, bytes, size, shift_ms)
  local index = S.ended[state]
  if not index then
    index = {}
    S.ended[state] = index
  end
  index[#index + 1] = shift_ms and shift_ms ~= 0 and whole(S.ms + shift_ms) or S.now
  index[#index + 1] = id
  S.bytes = S.bytes - bytes
  if state == "completed" then
    S.kept_completed = S.kept_completed + size
  else
    S.kept = S.kept + size
  end
  note(S, state, id, reason)
  tally(S.stats, state, 1)
end
