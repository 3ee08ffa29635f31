--- @include "whole"
--- @include "note"
-- Marks a job to enter delayed until `due_ms`.
local function postpone(S, id, due_ms, seq, reason)
  local index = S.delayed
  index[#index + 1] = whole(due_ms * 1024 + seq % 1024)
  index[#index + 1] = id
  if not S.due or due_ms < S.due then
    S.due = due_ms
  end
  note(S, "delayed", id, reason)
end
