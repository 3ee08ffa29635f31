-- Takes back jobs whose lease is over: to their old place, as suspects to delayed, or at the last delivery to dead.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   delayed     zset
-- KEYS[5]   lease       zset
-- KEYS[6]   dead        zset
-- KEYS[7]   expiry      zset
-- KEYS[8]   wake        zset
-- KEYS[9]   cold        string
-- KEYS[10]  events      stream
-- KEYS[11]  stats       hash
-- KEYS[12]  type_stats  hash
-- KEYS[13]  errors      list
-- KEYS[14]  leased      hash
-- KEYS[15]  minutes     prefix
-- KEYS[16]  records     prefix
-- KEYS[17]  unique      prefix
-- KEYS[18]  key_counts  hash
-- KEYS[19]  held_keys   hash
-- KEYS[20]  held_jobs   prefix
-- ARGV[1]   run_id      str   of the server, as this connection saw it
-- ARGV[2]   lease_ms    int   0 = the queue's
-- ARGV[3]   most        int   at most 100
-- Returns   {"ok", returned, buried}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], dead = KEYS[6],
  expiry = KEYS[7], wake = KEYS[8], cold = KEYS[9], events = KEYS[10], stats = KEYS[11], type_stats = KEYS[12],
  errors = KEYS[13], leased = KEYS[14], minutes = KEYS[15], records = KEYS[16], unique = KEYS[17],
  key_counts = KEYS[18], held_keys = KEYS[19], held_jobs = KEYS[20]}
--- @include "open"
--- @include "reap_ended"
--- @include "finish"
--- @include "write_errors"
local S = open(K)
if S.wrong then return S.wrong end
if tonumber(ARGV[2]) > 0 then S.lease_ms = tonumber(ARGV[2]) end
local returned, buried = reap_ended(K, S, ARGV[1], tonumber(ARGV[3]))
finish(K, S)
write_errors(K, S)
return {"ok", returned, buried}
