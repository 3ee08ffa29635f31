-- Jobs of one state that another key should seal, with what is sealed of them.
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
-- ARGV[3]   limit         int   jobs to look at, 1 to 500; fewer where those that come would exceed 4 MiB
-- ARGV[4]   key           str   id of the key that should
-- ARGV[5]   types         str   job types whose arguments should be sealed, joined by newlines
-- Returns   {"ok", looked, job...}   a job being {id, type, digest, envelope|nil, checkpoint|nil, result|nil}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], completed = KEYS[6],
  failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10], parked = KEYS[11], records = KEYS[12],
  envelopes = KEYS[13], outputs = KEYS[14], parked_types = KEYS[15], held_keys = KEYS[16], held_jobs = KEYS[17]}
--- @include "open"
--- @include "record_key"
--- @include "ids_in"
--- @include "sealed_parts"
local S = open(K)
if S.wrong then return S.wrong end
local sealing = {}
for name in string.gmatch(ARGV[5], "[^\n]+") do
  sealing[name] = true
end
local reply, looked, bytes = {"ok", 0}, 0, 0
local ids = ids_in(K, S, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
for i = 1, #ids do
  local R = redis.call("HMGET", record_key(K.records, ids[i]), "n", "z")
  local args, stale = false, false
  for part, id in string.gmatch(R[2] or "", "(%l)([^,]*)") do
    args, stale = args or part == "a", stale or id ~= ARGV[4]
  end
  if R[1] and (stale or (not args and sealing[R[1]] and ARGV[1] ~= "completed")) then
    local P = sealed_parts(K, ids[i])
    bytes = bytes + P.bytes
    if bytes > 4194304 and #reply > 2 then break end
    reply[#reply + 1] = {ids[i], R[1], P.digest, P.envelope, P.checkpoint, P.result}
  end
  looked = i
end
reply[2] = looked
return reply
