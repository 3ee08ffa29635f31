-- Writes the queue-level options, unless another Queue object owns this queue; then nothing is written. What an operator
-- wrote stays its own to change when it is away: its mark in meta outlives its record.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   wake        zset
-- KEYS[5]   cold        string
-- KEYS[6]   owner       string    operator, namespace, name, uid, a line each; 5 min
-- KEYS[7]   lease       zset
-- KEYS[8]   key_counts  hash
-- KEYS[9]   held_keys   hash
-- KEYS[10]  held_jobs   prefix
-- KEYS[11]  delayed     zset
-- KEYS[12]  expiry      zset
-- KEYS[13]  events      stream
-- KEYS[14]  stats       hash
-- KEYS[15]  rate        hash
-- KEYS[16]  minutes     prefix
-- KEYS[17]  records     prefix
-- ARGV[1]   operator  str   uid of the operator's Lease; "" = written by no operator
-- ARGV[2]   namespace str   of the Queue object
-- ARGV[3]   name      str
-- ARGV[4]   uid       str
-- ARGV[5]   generation int
-- ARGV[6]   how       str   "" | "limits": fields that no operator writes, whoever owns the queue | "forced"
-- ARGV[7+]  field, value    of meta; "" = the default
-- Returns   {"ok", "written", revision} | {"ok", "owned", operator, namespace, name, uid}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], wake = KEYS[4], cold = KEYS[5], owner = KEYS[6],
  lease = KEYS[7], key_counts = KEYS[8], held_keys = KEYS[9], held_jobs = KEYS[10], delayed = KEYS[11],
  expiry = KEYS[12], events = KEYS[13], stats = KEYS[14], rate = KEYS[15], minutes = KEYS[16], records = KEYS[17]}
--- @include "open"
--- @include "whole"
--- @include "when_full"
--- @include "other_owner"
--- @include "marked_owner"
--- @include "change_limits"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local other
if ARGV[1] ~= "" then
  other = other_owner(K, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
elseif ARGV[6] == "" then
  other = marked_owner(K)
end
if other then return {"ok", "owned", other[1], other[2], other[3], other[4]} end
local names, limits = {}, false
for i = 7, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
end
local is_limit = {rate = true, concurrency = true, per_key = true}
local old, put, drop = redis.call("HMGET", K.meta, unpack(names)), {}, {}
for i = 1, #names do
  local value = ARGV[2 * i + 6]
  if value == "" and old[i] then
    drop[#drop + 1] = names[i]
    limits = limits or is_limit[names[i]]
  elseif value ~= "" and value ~= old[i] then
    put[#put + 1], put[#put + 2] = names[i], value
    limits = limits or is_limit[names[i]]
  end
end
local waiting = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio)
when_full(K, S)
if ARGV[1] ~= "" then
  local record = table.concat({ARGV[1], ARGV[2], ARGV[3], ARGV[4]}, "\n")
  redis.call("SET", K.owner, record, "PX", "300000")
  redis.call("HSET", K.meta, "schema", "1", "gen", ARGV[5], "by", record)
elseif ARGV[6] == "forced" and redis.call("EXISTS", K.owner) == 0 then
  -- Nobody is there any more whose options these are.
  redis.call("HDEL", K.meta, "gen", "by")
end
if #put > 0 or #drop > 0 then
  S.revision = S.revision + 1
  put[#put + 1], put[#put + 2] = "rev", whole(S.revision)
  put[#put + 1], put[#put + 2] = "schema", "1"
  redis.call("HSET", K.meta, unpack(put))
  if #drop > 0 then redis.call("HDEL", K.meta, unpack(drop)) end
  local held = redis.call("HGET", K.meta, "held")
  if S.held and not held then
    S.held = false
    S.claimable = waiting
  end
  if limits then change_limits(K, S, waiting) end
  finish(K, S)
end
return {"ok", "written", S.revision}
