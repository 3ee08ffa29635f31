-- What the ledger says of schedules.
-- KEYS[1]   meta        hash
-- KEYS[2]   cron        hash    uid -> state; uid:entry -> policies
-- KEYS[3]   cron_at     zset
-- KEYS[4]   plans       prefix
-- KEYS[5]   records     prefix
-- ARGV[1+]  uid         str     at most 500; none = all
-- Returns   {"ok", now_ms, found...}    per schedule: uid, state, entry, next ms or "", planned, waiting, unfinished ids
local K = {meta = KEYS[1], cron = KEYS[2], cron_at = KEYS[3], plans = KEYS[4], records = KEYS[5]}
--- @include "whole"
--- @include "record_key"
--- @include "open"
--- @include "unfinished_ticks"
--- @include "next_instant"
local S = open(K)
if S.wrong then return S.wrong end
local uids = ARGV
if #uids == 0 then
  for _, field in ipairs(redis.call("HKEYS", K.cron)) do
    if not string.find(field, ":", 1, true) then
      uids[#uids + 1] = field
    end
  end
end
local reply = {"ok", S.now}
for i = 1, #uids do
  local uid = uids[i]
  local found = redis.call("HMGET", K.cron, uid, uid .. ":entry")
  if found[1] and found[2] then
    local state = cjson.decode(found[1])
    local ids, waiting = unfinished_ticks(K, state)
    local planned = redis.call("ZCOUNT", record_key(K.plans, uid), "(" .. whole(math.max(state.cursor, S.ms)), "+inf")
    local first = redis.call("ZSCORE", K.cron_at, uid) and next_instant(K, uid, state, cjson.decode(found[2]))
    local size = #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = uid, found[1], found[2]
    reply[size + 4], reply[size + 5] = first and whole(first) or "", planned
    reply[size + 6], reply[size + 7] = waiting, table.concat(ids, " ")
  end
end
return reply
