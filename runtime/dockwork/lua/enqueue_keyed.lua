-- Stores new jobs of which some have a unique or an idempotency key; what has none goes through enqueue.
-- KEYS[1]   meta          hash
-- KEYS[2]   ready         zset
-- KEYS[3]   prio          zset
-- KEYS[4]   delayed       zset
-- KEYS[5]   lease         zset
-- KEYS[6]   expiry        zset
-- KEYS[7]   wake          zset
-- KEYS[8]   cold          string
-- KEYS[9]   events        stream
-- KEYS[10]  stats         hash
-- KEYS[11]  parked        hash
-- KEYS[12]  minutes       prefix
-- KEYS[13]  records       prefix
-- KEYS[14]  envelopes     prefix
-- KEYS[15]  outputs       prefix
-- KEYS[16]  parked_types  prefix
-- KEYS[17]  unique        prefix
-- KEYS[18]  idempotency   prefix
-- KEYS[19]  key_counts    hash
-- KEYS[20]  held_keys     hash
-- KEYS[21]  held_jobs     prefix
-- KEYS[22]  key_ids  hash
-- ARGV[1]   jobs          int     1 to 256
-- ARGV[2+]  id, type, options, envelope    four per job, as for enqueue
-- Returns   {"ok", admission...}   as enqueue, and "=<state>=<id>" for the job that has the key, its state perhaps
--           "gone"; "~<state>=<id>=<reason>" for one that took the new arguments over; "!unique:0:0:<id>" and
--           "!key_reuse:0:0:<id>" for a refusal by that job's key
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], parked = KEYS[11], minutes = KEYS[12],
  records = KEYS[13], envelopes = KEYS[14], outputs = KEYS[15], parked_types = KEYS[16], unique = KEYS[17],
  idempotency = KEYS[18], key_counts = KEYS[19], held_keys = KEYS[20], held_jobs = KEYS[21],
  key_ids = KEYS[22]}
--- @include "open"
--- @include "store_keyed"
local S = open(K)
if S.wrong then return S.wrong end
local jobs = {}
for i = 1, tonumber(ARGV[1]) do
  local at = 4 * i - 2
  jobs[i] = {id = ARGV[at], type = ARGV[at + 1], options = ARGV[at + 2], envelope = ARGV[at + 3]}
end
return store_keyed(K, S, jobs)
