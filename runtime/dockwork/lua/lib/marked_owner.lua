-- The Queue object whose operator wrote the options of this queue: {operator, namespace, name, uid}, or nothing.
local function marked_owner(K)
  local found = redis.call("HMGET", K.meta, "gen", "by")
  if found[1] then
    return {string.match(found[2] or redis.call("GET", K.owner) or "\n\n\n", "^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$")}
  end
end
