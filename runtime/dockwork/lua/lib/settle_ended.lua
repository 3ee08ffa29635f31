--- @include "whole"
--- @include "tally_type"
--- @include "to_dead"
-- The run ended as failed, dead or cancelled. Attempts rise only with a failure to show for it (RT-033).
local function settle_ended(K, S, J)
  local R = J.record
  local state = J.outcome == "d" and "dead" or J.outcome == "f" and "failed" or "cancelled"
  local extra = {"t", J.started}
  if J.F then
    extra[#extra + 1] = "f"
    extra[#extra + 1] = whole((tonumber(R[6]) or 0) + 1)
  end
  if J.o then
    extra[#extra + 1] = "o"
    extra[#extra + 1] = "1"
  end
  if state ~= "cancelled" then
    tally_type(S, R[3], J.outcome, 1)
  end
  to_dead(K, S, J.id, state, J.W or "", tonumber(R[4]) or 0, extra)
end
