-- Ends waiting jobs that are out of time, and lets those in whose concurrency key has had room all the while.
-- KEYS[1]   meta          hash
-- KEYS[2]   ready         zset
-- KEYS[3]   prio          zset
-- KEYS[4]   delayed       zset
-- KEYS[5]   expired       zset
-- KEYS[6]   expiry        zset
-- KEYS[7]   wake          zset
-- KEYS[8]   cold          string
-- KEYS[9]   events        stream
-- KEYS[10]  stats         hash
-- KEYS[11]  parked        hash
-- KEYS[12]  minutes       prefix
-- KEYS[13]  records       prefix
-- KEYS[14]  parked_types  prefix
-- KEYS[15]  unique        prefix
-- KEYS[16]  lease         zset
-- KEYS[17]  key_counts    hash
-- KEYS[18]  held_keys     hash
-- KEYS[19]  held_jobs     prefix
-- ARGV[1]   most          int   at most 500
-- Returns   {"ok", expired}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], expired = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], parked = KEYS[11], minutes = KEYS[12],
  records = KEYS[13], parked_types = KEYS[14], unique = KEYS[15], lease = KEYS[16], key_counts = KEYS[17],
  held_keys = KEYS[18], held_jobs = KEYS[19]}
--- @include "open"
--- @include "record_key"
--- @include "remove_all"
--- @include "leave_index"
--- @include "to_dead"
--- @include "finish"
--- @include "look_again"
local S = open(K)
if S.wrong then return S.wrong end
local ids = redis.call("ZRANGEBYSCORE", K.expiry, "-inf", S.now, "LIMIT", 0, tonumber(ARGV[1]))
if S.keyed then look_again(K, S) end
if #ids == 0 and not S.keyed then return {"ok", 0} end
local records = {}
for i = 1, #ids do
  records[i] = redis.call("HMGET", record_key(K.records, ids[i]), "s", "pt", "b")
end
remove_all(K.expiry, ids)
S.wrote = #ids > 0
local waiting, count = {ready = true, prioritized = true, delayed = true, parked = true}, 0
for i = 1, #ids do
  local R = records[i]
  if R[1] and waiting[R[1]] and leave_index(K, S, ids[i], R[1], R[2]) then
    to_dead(K, S, ids[i], "expired", "out of time", tonumber(R[3]) or 0)
    count = count + 1
  end
end
finish(K, S)
return {"ok", count}
