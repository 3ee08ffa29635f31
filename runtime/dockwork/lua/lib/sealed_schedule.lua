-- A schedule's entry as it is stored: its job type, its options, and the ids of the keys in them (`z=k1,k2;`), between
-- commas; "" where nothing is sealed.
local function sealed_schedule(text)
  local entry = cjson.decode(text)
  return entry.type, entry.options, string.match(";" .. entry.options, ";z=([^;]*)") or ""
end
