-- Puts the counters right: those of leases, of parked jobs and of jobs that wait aside from their indexes, the sums
-- over all jobs from what the caller weighed, unless the queue has moved since.
-- KEYS[1]   meta          hash
-- KEYS[2]   lease         zset
-- KEYS[3]   stats         hash
-- KEYS[4]   wake          zset
-- KEYS[5]   cold          string
-- KEYS[6]   parked        hash
-- KEYS[7]   leased        hash
-- KEYS[8]   key_counts    hash
-- KEYS[9]   held_keys     hash
-- KEYS[10]  held_jobs     prefix
-- KEYS[11]  records       prefix
-- KEYS[12]  parked_types  prefix
-- KEYS[13]  key_ids       hash
-- ARGV[1]   mark          str   of `weigh`, from before the first job was weighed
-- ARGV[2]   bytes         int
-- ARGV[3]   kept          int
-- ARGV[4]   kept_completed  int
-- ARGV[5]   keys          int    concurrency keys that follow
-- ARGV[6+]  key, number   str, int    jobs that may be claimed by concurrency key, then jobs by sealing key
-- Returns   {"ok", "moved"} | {"ok", "ok", name...}   the counters that were wrong
local K = {meta = KEYS[1], lease = KEYS[2], stats = KEYS[3], wake = KEYS[4], cold = KEYS[5], parked = KEYS[6],
  leased = KEYS[7], key_counts = KEYS[8], held_keys = KEYS[9], held_jobs = KEYS[10], records = KEYS[11],
  parked_types = KEYS[12], key_ids = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "record_key"
--- @include "pod_of"
--- @include "when_full"
--- @include "stock_mark"
--- @include "replace_hash"
--- @include "post_markers"
local S = open(K)
if S.wrong then return S.wrong end
if stock_mark(K) ~= ARGV[1] then return {"ok", "moved"} end
when_full(K, S)
local reply, leased, keys = {"ok", "ok"}, {}, {}
local function fix(name, field, now, right)
  if now ~= right then
    redis.call("HSET", K.meta, field, whole(right))
    reply[#reply + 1] = name
  end
end
for _, id in ipairs(redis.call("ZRANGE", K.lease, 0, -1)) do
  local R = redis.call("HMGET", record_key(K.records, id), "w", "k")
  local pod = R[1] and pod_of(R[1])
  if pod then leased[pod] = (leased[pod] or 0) + 1 end
  if R[2] then
    keys[R[2]] = keys[R[2]] or {0, 0}
    keys[R[2]][1] = keys[R[2]][1] + 1
  end
end
local sealed = {}
for i = 6, #ARGV, 2 do
  if i < 6 + 2 * tonumber(ARGV[5]) then
    keys[ARGV[i]] = keys[ARGV[i]] or {0, 0}
    keys[ARGV[i]][2] = tonumber(ARGV[i + 1])
  else
    sealed[ARGV[i]] = tonumber(ARGV[i + 1])
  end
end
local parked, in_all, held, ready, prio = {}, 0, {}, 0, 0
for _, name in ipairs(redis.call("HKEYS", K.parked)) do
  local size = redis.call("ZCARD", record_key(K.parked_types, name))
  if size > 0 then parked[name] = size end
  in_all = in_all + size
end
for _, key in ipairs(redis.call("HKEYS", K.held_keys)) do
  local index = record_key(K.held_jobs, key)
  local size = redis.call("ZCARD", index)
  local plain = redis.call("ZCOUNT", index, 0, "(17592186044416")
  if size > 0 then held[key] = size end
  ready, prio = ready + plain, prio + size - plain
end
for key, counts in pairs(keys) do keys[key] = counts[1] .. " " .. counts[2] end
if replace_hash(K.leased, leased) then reply[#reply + 1] = "leased" end
if replace_hash(K.parked, parked) then reply[#reply + 1] = "parked" end
if replace_hash(K.held_keys, held) then reply[#reply + 1] = "held" end
if replace_hash(K.key_counts, keys) then reply[#reply + 1] = "keys" end
if replace_hash(K.key_ids, sealed) then reply[#reply + 1] = "sealed" end
fix("bytes", "bytes", S.bytes, tonumber(ARGV[2]))
fix("kept", "kept", S.kept, tonumber(ARGV[3]))
fix("kept_completed", "keptc", S.kept_completed, tonumber(ARGV[4]))
fix("parked", "parked", S.parked, in_all)
fix("held", "hr", S.held_ready or 0, ready)
fix("held", "hp", S.held_prio or 0, prio)
if #reply > 2 then post_markers(K, S, 8) end
return reply
