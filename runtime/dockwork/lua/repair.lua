-- Looks at jobs one by one: a record that is in no index or in a wrong one goes where its state says, an id without a
-- record goes, a job without its envelope is buried. Counters are `recount`'s.
-- KEYS[1]   meta          hash
-- KEYS[2]   ready         zset
-- KEYS[3]   prio          zset
-- KEYS[4]   delayed       zset
-- KEYS[5]   lease         zset
-- KEYS[6]   completed     zset
-- KEYS[7]   failed        zset
-- KEYS[8]   dead          zset
-- KEYS[9]   expired       zset
-- KEYS[10]  cancelled     zset
-- KEYS[11]  expiry        zset
-- KEYS[12]  wake          zset
-- KEYS[13]  cold          string
-- KEYS[14]  events        stream
-- KEYS[15]  stats         hash
-- KEYS[16]  parked        hash
-- KEYS[17]  key_counts    hash
-- KEYS[18]  held_keys     hash
-- KEYS[19]  held_jobs     prefix
-- KEYS[20]  minutes       prefix
-- KEYS[21]  records       prefix
-- KEYS[22]  envelopes     prefix
-- KEYS[23]  outputs       prefix
-- KEYS[24]  parked_types  prefix
-- KEYS[25]  unique        prefix
-- ARGV[1+]  job_id        str    at most 200
-- Returns   {"ok", no_index, no_record, wrong_index, no_envelope}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], completed = KEYS[6],
  failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10], expiry = KEYS[11], wake = KEYS[12],
  cold = KEYS[13], events = KEYS[14], stats = KEYS[15], parked = KEYS[16], key_counts = KEYS[17],
  held_keys = KEYS[18], held_jobs = KEYS[19], minutes = KEYS[20], records = KEYS[21], envelopes = KEYS[22],
  outputs = KEYS[23], parked_types = KEYS[24], unique = KEYS[25]}
--- @include "open"
--- @include "record_key"
--- @include "repair_job"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local indexes = {K.ready, K.prio, K.delayed, K.lease, K.completed, K.failed, K.dead, K.expired, K.cancelled}
for _, name in ipairs(redis.call("HKEYS", K.parked)) do
  indexes[#indexes + 1] = record_key(K.parked_types, name)
end
local found = {no_index = 0, no_record = 0, wrong_index = 0, no_envelope = 0}
for i = 1, #ARGV do
  local what = repair_job(K, S, ARGV[i], indexes)
  if what then found[what] = found[what] + 1 end
end
if S.wrote then finish(K, S) end
return {"ok", found.no_index, found.no_record, found.wrong_index, found.no_envelope}
