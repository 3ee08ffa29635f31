-- A text that changes with whatever moves a counter of `recount`.
local function stock_mark(K)
  local meta = redis.call("HMGET", K.meta, "seq", "bytes", "kept", "keptc", "parked")
  local stats = redis.call("HMGET", K.stats, "claimed", "finished", "entered", "enqueued", "cancelled", "expired", "purged",
    "redriven")
  local said = {}
  for i = 1, 5 do said[i] = meta[i] or "" end
  for i = 1, 8 do said[5 + i] = stats[i] or "" end
  return table.concat(said, " ")
end
