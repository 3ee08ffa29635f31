-- Writes this call's events: one stream entry per name and reason, with all its ids.
local function add_events(K, S)
  for i = 1, #S.order do
    local name, reason, ids = S.order[i][1], S.order[i][2], table.concat(S.order[i][3], " ")
    if reason == "" then
      redis.call("XADD", K.events, "MAXLEN", "~", "50000", "*", "name", name, "ids", ids)
    else
      redis.call("XADD", K.events, "MAXLEN", "~", "50000", "*", "name", name, "ids", ids, "reason", reason)
    end
  end
  S.order, S.groups = {}, {}
end
