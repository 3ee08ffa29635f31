-- Puts ended jobs back that are exactly as they were reviewed: counters at 0, at the end of the queue.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   delayed     zset
-- KEYS[5]   lease       zset
-- KEYS[6]   failed      zset
-- KEYS[7]   dead        zset
-- KEYS[8]   expired     zset
-- KEYS[9]   cancelled   zset
-- KEYS[10]  expiry      zset
-- KEYS[11]  wake        zset
-- KEYS[12]  cold        string
-- KEYS[13]  events      stream
-- KEYS[14]  stats       hash
-- KEYS[15]  key_counts  hash
-- KEYS[16]  held_keys   hash
-- KEYS[17]  held_jobs   prefix
-- KEYS[18]  minutes     prefix
-- KEYS[19]  records     prefix
-- KEYS[20]  envelopes   prefix
-- KEYS[21]  unique      prefix
-- KEYS[22]  outputs     prefix
-- KEYS[23]  key_ids     hash
-- ARGV[1+]  job_id, digest, keys, envelope, checkpoint    five per job, at most 200; digest: as found, or "" for whatever
--           the job is; the rest: what seals what of it anew, as in a settlement's Z, and the values, "" for what stays
-- Returns   {"ok", said...}   "ok" | "conflicted" | "missing", in order
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], failed = KEYS[6],
  dead = KEYS[7], expired = KEYS[8], cancelled = KEYS[9], expiry = KEYS[10], wake = KEYS[11], cold = KEYS[12],
  events = KEYS[13], stats = KEYS[14], key_counts = KEYS[15], held_keys = KEYS[16], held_jobs = KEYS[17],
  minutes = KEYS[18], records = KEYS[19], envelopes = KEYS[20], unique = KEYS[21],
  outputs = KEYS[22], key_ids = KEYS[23]}
--- @include "open"
--- @include "tally"
--- @include "redrive_job"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local reply = {"ok"}
for i = 1, #ARGV, 5 do
  local said = redrive_job(K, S, ARGV[i], ARGV[i + 1],
    {keys = ARGV[i + 2], envelope = ARGV[i + 3], checkpoint = ARGV[i + 4]})
  if said == "ok" then tally(S.stats, "redriven", 1) end
  reply[#reply + 1] = said
end
if S.wrote then finish(K, S) end
return reply
