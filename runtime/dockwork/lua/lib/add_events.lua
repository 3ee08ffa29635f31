--- @include "publish_events"
-- Writes this call's events: one stream entry per name and reason, with all its ids, then a group's own fields.
-- A queue may publish them instead, or say nothing (RT-140).
local function add_events(K, S)
  if S.events then
    publish_events(K, S)
  else
    for i = 1, #S.order do
      local group = S.order[i]
      local name, reason, ids = group[1], group[2], table.concat(group[3], " ")
      if group[4] then
        redis.call("XADD", K.events, "MAXLEN", "~", "50000", "*", "name", name, "ids", ids, unpack(group[4]))
      elseif reason == "" then
        redis.call("XADD", K.events, "MAXLEN", "~", "50000", "*", "name", name, "ids", ids)
      else
        redis.call("XADD", K.events, "MAXLEN", "~", "50000", "*", "name", name, "ids", ids, "reason", reason)
      end
    end
  end
  S.order, S.groups = {}, {}
end
