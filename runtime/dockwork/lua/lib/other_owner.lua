-- The owner that keeps this Queue object out (OP-022): {operator, namespace, name, uid}, or nothing. The same
-- operator, namespace and name takes it over at once; the same uid under another operator after 15 s without
-- renewal; anybody else when the record has expired.
local function other_owner(K, operator, namespace, name, uid)
  local record = redis.call("GET", K.owner)
  if not record then
    return
  end
  local owner = {string.match(record, "^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$")}
  if owner[1] == operator and owner[2] == namespace and owner[3] == name then
    return
  end
  if owner[4] == uid and 300000 - redis.call("PTTL", K.owner) >= 15000 then
    return
  end
  return owner
end
