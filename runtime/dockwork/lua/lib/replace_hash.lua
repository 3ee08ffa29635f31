-- Makes a hash hold what `right` says, and nothing else. Answers whether anything was otherwise.
local function replace_hash(key, right)
  local stored, changed, seen = redis.call("HGETALL", key), false, {}
  for i = 1, #stored, 2 do
    local wanted = right[stored[i]]
    seen[stored[i]] = true
    if wanted == nil then
      redis.call("HDEL", key, stored[i])
      changed = true
    elseif tostring(wanted) ~= stored[i + 1] then
      redis.call("HSET", key, stored[i], tostring(wanted))
      changed = true
    end
  end
  for name, value in pairs(right) do
    if not seen[name] then
      redis.call("HSET", key, name, tostring(value))
      changed = true
    end
  end
  return changed
end
