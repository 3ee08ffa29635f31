-- Puts running jobs back: at their old place or at the end, charged nothing, each fenced by its epoch.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   lease       zset
-- KEYS[5]   expiry      zset
-- KEYS[6]   wake        zset
-- KEYS[7]   cold        string
-- KEYS[8]   events      stream
-- KEYS[9]   stats       hash
-- KEYS[10]  leased      hash
-- KEYS[11]  minutes     prefix
-- KEYS[12]  records     prefix
-- KEYS[13]  key_counts  hash
-- KEYS[14]  held_keys   hash
-- KEYS[15]  held_jobs   prefix
-- ARGV[1]   where         str   "front" | "back"
-- ARGV[2]   reason        str   of the event, and the cause counted
-- ARGV[3+]  job_id, epoch    a pair per lease, at most 500
-- Returns   {"ok", verdict...}    "ok" | "lost", in order
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], lease = KEYS[4], expiry = KEYS[5], wake = KEYS[6],
  cold = KEYS[7], events = KEYS[8], stats = KEYS[9], leased = KEYS[10], minutes = KEYS[11], records = KEYS[12],
  key_counts = KEYS[13], held_keys = KEYS[14], held_jobs = KEYS[15]}
--- @include "open"
--- @include "held_record"
--- @include "remove_all"
--- @include "put_back"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local reply, ids, records, seen = {"ok"}, {}, {}, {}
for i = 3, #ARGV, 2 do
  local R = held_record(K, ARGV[i], ARGV[i + 1], seen)
  if R then
    ids[#ids + 1], records[#records + 1] = ARGV[i], R
  end
  reply[#reply + 1] = R and "ok" or "lost"
end
if #ids > 0 then
  remove_all(K.lease, ids)
  S.wrote = true
  for i = 1, #ids do
    put_back(K, S, ids[i], records[i], {cause = ARGV[2], reason = ARGV[2], back = ARGV[1] == "back"})
  end
  finish(K, S)
end
return reply
