-- Puts a job into this call's event `name`: one stream entry per name and reason lists all its ids.
local function note(S, name, id, reason)
  reason = reason or ""
  local group = name .. " " .. reason
  local ids = S.groups[group]
  if not ids then
    ids = {}
    S.groups[group] = ids
    S.order[#S.order + 1] = {name, reason, ids}
  end
  ids[#ids + 1] = id
end
