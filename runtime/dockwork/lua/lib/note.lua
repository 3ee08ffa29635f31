-- Puts a job into this call's event `name`: one stream entry per name and reason lists all its ids.
local function note(S, name, id, reason)
  reason = reason or ""
  local by_reason = S.groups[name]
  if not by_reason then
    by_reason = {}
    S.groups[name] = by_reason
  end
  local ids = by_reason[reason]
  if not ids then
    ids = {}
    by_reason[reason] = ids
    S.order[#S.order + 1] = {name, reason, ids}
  end
  ids[#ids + 1] = id
end
