-- Keeps an error report for the end of this call: attempt, outcome, job, time and type in a line, then the failure
-- as JSON of less than 4 KiB.
local function note_error(S, id, kind, attempt, outcome, failure)
  S.errors = S.errors or {}
  local head = table.concat({attempt, outcome, id, S.now, kind}, " ")
  S.errors[#S.errors + 1] = head .. "\n" .. failure
end
