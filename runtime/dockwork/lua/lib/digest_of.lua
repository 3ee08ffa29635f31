-- What a job is, in 40 hex digits: the same for the same fields and envelope. `record` is a HGETALL. It tells a change
-- between a look and an action; it is no security.
local function digest_of(record, envelope)
  local names, values = {}, {}
  for i = 1, #record, 2 do
    names[#names + 1], values[record[i]] = record[i], record[i + 1]
  end
  table.sort(names)
  for i = 1, #names do
    names[i] = names[i] .. "=" .. values[names[i]]
  end
  return redis.sha1hex(table.concat(names, "\n") .. "\n\n" .. (envelope or ""))
end
