-- A schedule: what the ledger says of it, and its entry (policies). Nothing if there is no such uid.
-- Both are small JSON of our own making, never an envelope (RT-040): times in ms have 13 digits, cjson keeps 14.
local function read_schedule(K, uid)
  local found = redis.call("HMGET", K.cron, uid, uid .. ":entry")
  if found[1] and found[2] then
    return cjson.decode(found[1]), cjson.decode(found[2])
  end
end
