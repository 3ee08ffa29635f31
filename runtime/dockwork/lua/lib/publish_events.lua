-- The events of a queue that keeps no stream: published on the stream's name, or dropped where the mode is "off".
-- A message is name, ids and reason, then fields and values, a line each. By pcall: what was moved stays moved for a
-- login that may not publish.
local function publish_events(K, S)
  if S.events ~= "pubsub" then
    return
  end
  for i = 1, #S.order do
    local group = S.order[i]
    local reason = string.gsub(group[2], "[\r\n]", " ")
    local lines = {group[1], table.concat(group[3], " "), reason}
    for n = 1, #(group[4] or {}) do
      lines[#lines + 1] = group[4][n]
    end
    redis.pcall("PUBLISH", K.events, table.concat(lines, "\n"))
  end
end
