-- Keeps what seals a job: `z` of its record has an id per sealed part (a arguments, c checkpoint, r result), and the
-- hash of keys counts the jobs of each id. `after`: the ids of each part that was written, none for one that is gone.
local function note_keys(K, record, z, after)
  local was, is, parts = {}, {}, {}
  for part, id in string.gmatch(z or "", "(%l)([^,]*)") do
    was[id] = true
    if not after[part] then
      is[id] = true
      parts[#parts + 1] = part .. id
    end
  end
  for part, ids in pairs(after) do
    for i = 1, #ids do
      is[ids[i]] = true
      parts[#parts + 1] = part .. ids[i]
    end
  end
  for id in pairs(is) do
    if not was[id] then
      redis.call("HINCRBY", K.key_ids, id, "1")
    end
  end
  for id in pairs(was) do
    if not is[id] and redis.call("HINCRBY", K.key_ids, id, "-1") <= 0 then
      redis.call("HDEL", K.key_ids, id)
    end
  end
  table.sort(parts)
  local text = table.concat(parts, ",")
  if text ~= "" and text ~= z then
    redis.call("HSET", record, "z", text)
  elseif text == "" and z then
    redis.call("HDEL", record, "z")
  end
end
