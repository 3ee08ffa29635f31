-- Takes back all jobs of one owner that is gone: evicted (charged nothing) or died by itself (the delivery counts).
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
-- KEYS[15]  workers     hash
-- KEYS[16]  minutes     prefix
-- KEYS[17]  records     prefix
-- KEYS[18]  outputs     prefix
-- KEYS[19]  receipts    prefix
-- KEYS[20]  nudges      prefix
-- KEYS[21]  unique      prefix
-- KEYS[22]  key_counts  hash
-- KEYS[23]  held_keys   hash
-- KEYS[24]  held_jobs   prefix
-- ARGV[1]   owner       str
-- ARGV[2]   cause       str   "evicted" | "died"
-- ARGV[3]   exit        str   how the container ended, for the job, or ""
-- ARGV[4]   from        int   rank in leases to go on from
-- Returns   {"ok", revoked, next}    next: the rank to go on from, -1 at the end; looks at 1000 leases a call
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], dead = KEYS[6],
  expiry = KEYS[7], wake = KEYS[8], cold = KEYS[9], events = KEYS[10], stats = KEYS[11], type_stats = KEYS[12],
  errors = KEYS[13], leased = KEYS[14], workers = KEYS[15], minutes = KEYS[16], records = KEYS[17],
  outputs = KEYS[18], receipts = KEYS[19], nudges = KEYS[20], unique = KEYS[21], key_counts = KEYS[22],
  held_keys = KEYS[23], held_jobs = KEYS[24]}
--- @include "open"
--- @include "record_key"
--- @include "remove_all"
--- @include "put_back"
--- @include "finish"
--- @include "write_errors"
local S = open(K)
if S.wrong then return S.wrong end
local owner, died, from = ARGV[1], ARGV[2] == "died", tonumber(ARGV[4])
local all, ids, records = redis.call("ZRANGE", K.lease, from, from + 999), {}, {}
for i = 1, #all do
  local R = redis.call("HMGET", record_key(K.records, all[i]), "n", "p", "q", "v", "mv", "i", "w", "b", "x", "s",
    "f", "e")
  if R[7] == owner then
    ids[#ids + 1], records[#records + 1] = all[i], R
  end
end
local how = {cause = died and "died" or "revoked", charge = died, stalled = died, reason = not died and "revoked"}
if #ids > 0 then
  remove_all(K.lease, ids)
  S.wrote = true
  for i = 1, #ids do
    if ARGV[3] ~= "" then
      redis.call("HSET", record_key(K.outputs, ids[i]), "exit", ARGV[3])
      redis.call("HSET", record_key(K.records, ids[i]), "o", "1")
    end
    put_back(K, S, ids[i], records[i], how)
  end
  finish(K, S)
  write_errors(K, S)
end
if #all == 1000 then return {"ok", #ids, from + 1000 - #ids} end
redis.call("HDEL", K.workers, owner)
redis.call("UNLINK", record_key(K.receipts, owner), record_key(K.nudges, owner))
return {"ok", #ids, -1}
