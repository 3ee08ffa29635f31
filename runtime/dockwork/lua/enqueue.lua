-- Stores new jobs: each is checked, then record, envelope, index, counters and event are written.
-- KEYS[1]   meta        hash    limits, flags, seq
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   delayed     zset
-- KEYS[5]   lease       zset    its size counts towards the depth
-- KEYS[6]   expiry      zset
-- KEYS[7]   wake        zset
-- KEYS[8]   cold        string
-- KEYS[9]   events      stream
-- KEYS[10]  stats       hash
-- KEYS[11]  minutes     prefix
-- KEYS[12]  records     prefix
-- KEYS[13]  envelopes   prefix
-- KEYS[14]  key_counts  hash
-- KEYS[15]  held_keys   hash
-- KEYS[16]  held_jobs   prefix
-- KEYS[17]  key_ids     hash
-- ARGV[1]   jobs        int     1 to 256; below 0: so many, and two of them may have one id
-- ARGV[2+]  id, type, options, envelope    four per job; options: `name=value;` each, see calls.py
-- Returns   {"ok", admission...}   "ready" | "prioritized" | "delayed" | "=<state of the known job>" |
--                                  "!<reason>:<current>:<limit>"; or {"ok", "*"}: all are ready
--- @flat "enqueue"
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], minutes = KEYS[11], records = KEYS[12],
  envelopes = KEYS[13], key_counts = KEYS[14], held_keys = KEYS[15], held_jobs = KEYS[16],
  key_ids = KEYS[17]}
--- @include "open"
--- @include "store_jobs"
local S = open(K)
if S.wrong then return S.wrong end
local jobs = {}
for i = 1, math.abs(tonumber(ARGV[1])) do
  local at = 4 * i - 2
  jobs[i] = {id = ARGV[at], type = ARGV[at + 1], options = ARGV[at + 2], envelope = ARGV[at + 3]}
end
return store_jobs(K, S, jobs)
