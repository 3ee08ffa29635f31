-- The key of one job, owner, type or hour: the only place in Lua that forms a key.
local function record_key(prefix, id)
  return prefix .. id
end
