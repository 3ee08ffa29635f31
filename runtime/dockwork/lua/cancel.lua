-- Cancels one job: a waiting one ends here, a running one gets a flag and its worker a nudge. By force a running one
-- ends here, too, and whatever its worker still says of it is lost.
-- KEYS[1]   meta          hash
-- KEYS[2]   ready         zset
-- KEYS[3]   prio          zset
-- KEYS[4]   delayed       zset
-- KEYS[5]   cancelled     zset
-- KEYS[6]   expiry        zset
-- KEYS[7]   wake          zset
-- KEYS[8]   cold          string
-- KEYS[9]   events        stream
-- KEYS[10]  stats         hash
-- KEYS[11]  parked        hash
-- KEYS[12]  minutes       prefix
-- KEYS[13]  records       prefix
-- KEYS[14]  parked_types  prefix
-- KEYS[15]  nudges        prefix
-- KEYS[16]  unique        prefix
-- KEYS[17]  lease         zset
-- KEYS[18]  key_counts    hash
-- KEYS[19]  held_keys     hash
-- KEYS[20]  held_jobs     prefix
-- KEYS[21]  leased        hash
-- ARGV[1]   job_id        str
-- ARGV[2]   force         int   1 or 0
-- Returns   {"ok", said}    "cancelled" | "flagged" | "too_late" | "missing"
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], cancelled = KEYS[5],
  expiry = KEYS[6], wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], parked = KEYS[11],
  minutes = KEYS[12], records = KEYS[13], parked_types = KEYS[14], nudges = KEYS[15], unique = KEYS[16],
  lease = KEYS[17], key_counts = KEYS[18], held_keys = KEYS[19], held_jobs = KEYS[20],
  leased = KEYS[21]}
--- @include "open"
--- @include "record_key"
--- @include "when_full"
--- @include "leave_index"
--- @include "to_dead"
--- @include "nudge"
--- @include "tally"
--- @include "pod_of"
--- @include "leave_key"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local id = ARGV[1]
local key = record_key(K.records, id)
local R = redis.call("HMGET", key, "s", "pt", "b", "x", "w")
local state = R[1]
if not state then return {"ok", "missing"} end
local runs = state == "active" or state == "processing"
if runs and ARGV[2] == "1" then
  redis.call("ZREM", K.lease, id)
  S.wrote = true
  if R[5] then tally(S.leased, pod_of(R[5]), -1) end
  if S.concurrency then S.woken = 1 end
  if S.keyed then leave_key(S, id, "running") end
  to_dead(K, S, id, "cancelled", "forced", tonumber(R[3]) or 0)
  nudge(K, R[5], "cancel " .. id)
  finish(K, S)
  return {"ok", "cancelled"}
elseif runs then
  when_full(K, S)
  redis.call("HSET", key, "cx", "1", "m", "1")
  nudge(K, R[5], "cancel " .. id)
  return {"ok", "flagged"}
end
if state ~= "ready" and state ~= "prioritized" and state ~= "delayed" and state ~= "parked" then
  return {"ok", "too_late"}
end
leave_index(K, S, id, state, R[2])
if R[4] then S.unexpiry[1] = id end
to_dead(K, S, id, "cancelled", "", tonumber(R[3]) or 0)
finish(K, S)
return {"ok", "cancelled"}
