-- Takes back jobs whose lease is over: to their old place, or to dead at the last delivery allowed.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   lease       zset
-- KEYS[5]   dead        zset
-- KEYS[6]   expiry      zset
-- KEYS[7]   wake        zset
-- KEYS[8]   cold        string
-- KEYS[9]   events      stream
-- KEYS[10]  stats       hash
-- KEYS[11]  type_stats  hash
-- KEYS[12]  leased      hash
-- KEYS[13]  minutes     prefix
-- KEYS[14]  records     prefix
-- ARGV[1]   run_id      str   of the server, as this connection saw it
-- ARGV[2]   lease_ms    int   0 = the queue's
-- ARGV[3]   most        int   at most 100
-- Returns   {"ok", returned, buried}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], lease = KEYS[4], dead = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], type_stats = KEYS[11], leased = KEYS[12],
  minutes = KEYS[13], records = KEYS[14]}
--- @include "open"
--- @include "reap_ended"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
if tonumber(ARGV[2]) > 0 then S.lease_ms = tonumber(ARGV[2]) end
local returned, buried = reap_ended(K, S, ARGV[1], tonumber(ARGV[3]))
finish(K, S)
return {"ok", returned, buried}
