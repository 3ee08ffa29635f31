-- Takes back jobs whose own child process died under them: the delivery counts, and how it ended is on the job.
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
-- KEYS[17]  outputs     prefix
-- KEYS[18]  unique      prefix
-- KEYS[19]  key_counts  hash
-- KEYS[20]  held_keys   hash
-- KEYS[21]  held_jobs   prefix
-- ARGV[1+]  job_id, epoch, exit    three per lease, at most 300; exit: a signal or an exit code, for people
-- Returns   {"ok", verdict...}    "ok" | "lost", in order
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], dead = KEYS[6],
  expiry = KEYS[7], wake = KEYS[8], cold = KEYS[9], events = KEYS[10], stats = KEYS[11], type_stats = KEYS[12],
  errors = KEYS[13], leased = KEYS[14], minutes = KEYS[15], records = KEYS[16], outputs = KEYS[17],
  unique = KEYS[18], key_counts = KEYS[19], held_keys = KEYS[20], held_jobs = KEYS[21]}
--- @include "open"
--- @include "record_key"
--- @include "held_record"
--- @include "remove_all"
--- @include "put_back"
--- @include "finish"
--- @include "write_errors"
local S = open(K)
if S.wrong then return S.wrong end
local reply, ids, records, exits, seen = {"ok"}, {}, {}, {}, {}
for i = 1, #ARGV, 3 do
  local R = held_record(K, ARGV[i], ARGV[i + 1], seen)
  if R then
    ids[#ids + 1], records[#records + 1], exits[#exits + 1] = ARGV[i], R, ARGV[i + 2]
  end
  reply[#reply + 1] = R and "ok" or "lost"
end
if #ids > 0 then
  remove_all(K.lease, ids)
  S.wrote = true
  for i = 1, #ids do
    redis.call("HSET", record_key(K.outputs, ids[i]), "exit", exits[i])
    redis.call("HSET", record_key(K.records, ids[i]), "o", "1")
    put_back(K, S, ids[i], records[i], {cause = "child_died", charge = true, stalled = true})
  end
  finish(K, S)
  write_errors(K, S)
end
return reply
