-- The jobs of one state: waiting and running ones in their order, ended ones newest first.
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
-- KEYS[11]  parked        hash
-- KEYS[12]  records       prefix
-- KEYS[13]  envelopes     prefix
-- KEYS[14]  outputs       prefix
-- KEYS[15]  parked_types  prefix
-- KEYS[16]  held_keys     hash
-- KEYS[17]  held_jobs     prefix
-- ARGV[1]   state         str
-- ARGV[2]   offset        int
-- ARGV[3]   limit         int   1 to 500; fewer come where they would exceed 4 MiB
-- Returns   {"ok", paused, job...}    see get
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], completed = KEYS[6],
  failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10], parked = KEYS[11], records = KEYS[12],
  envelopes = KEYS[13], outputs = KEYS[14], parked_types = KEYS[15], held_keys = KEYS[16], held_jobs = KEYS[17]}
--- @include "open"
--- @include "record_key"
--- @include "ids_in"
--- @include "view"
local S = open(K)
if S.wrong then return S.wrong end
local reply, bytes = {"ok", S.paused and 1 or 0}, 0
local ids = ids_in(K, S, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
for i = 1, #ids do
  local job, size = view(K, ids[i], true)
  if job then
    bytes = bytes + size
    if bytes > 4194304 and #reply > 2 then break end
    reply[#reply + 1] = job
  end
end
return reply
