-- Removes a schedule: entry, plan and ledger. Jobs that it has made stay.
-- KEYS[1]   meta        hash
-- KEYS[2]   cron        hash    uid -> state; uid:entry; uid:env
-- KEYS[3]   cron_at     zset
-- KEYS[4]   tick        zset    "uid:instant", all with score 0
-- KEYS[5]   plans       prefix
-- ARGV[1]   uid         str
-- Returns   {"ok", removed}     removed: 1, or 0 if there was none
local K = {meta = KEYS[1], cron = KEYS[2], cron_at = KEYS[3], tick = KEYS[4], plans = KEYS[5]}
--- @include "record_key"
--- @include "open"
local S = open(K)
if S.wrong then return S.wrong end
local uid = ARGV[1]
redis.call("ZREM", K.cron_at, uid)
redis.call("UNLINK", record_key(K.plans, uid))
redis.call("ZREMRANGEBYLEX", K.tick, "[" .. uid .. ":", "(" .. uid .. ";")
return {"ok", redis.call("HDEL", K.cron, uid, uid .. ":entry", uid .. ":env") > 0 and 1 or 0}
