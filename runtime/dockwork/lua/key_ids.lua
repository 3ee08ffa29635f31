-- Jobs per id of the key that seals something of them, and schedules per id of the key that seals their arguments.
-- KEYS[1]   meta     hash
-- KEYS[2]   key_ids  hash
-- KEYS[3]   cron     hash
-- ARGV      none
-- Returns   {"ok", {id, jobs...}, {id...}}   the second once for each schedule
local K = {meta = KEYS[1], key_ids = KEYS[2], cron = KEYS[3]}
--- @include "open"
--- @include "sealed_schedule"
local S = open(K)
if S.wrong then return S.wrong end
local fields, scheduled = redis.call("HGETALL", K.cron), {}
for i = 1, #fields, 2 do
  if string.sub(fields[i], -6) == ":entry" then
    local _, _, ids = sealed_schedule(fields[i + 1])
    for id in string.gmatch(ids, "[^,]+") do
      scheduled[#scheduled + 1] = id
    end
  end
end
return {"ok", redis.call("HGETALL", K.key_ids), scheduled}
