-- Deletes a queue's jobs, a part with each call: the first one closes intake and claims under a token, which the others
-- give. Whoever asks last deletes what is left of the keys and calls `obliterate_end`.
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
-- KEYS[11]  wake          zset
-- KEYS[12]  parked        hash
-- KEYS[13]  held_keys     hash
-- KEYS[14]  cron_at       zset
-- KEYS[15]  parked_types  prefix
-- KEYS[16]  held_jobs     prefix
-- KEYS[17]  records       prefix
-- KEYS[18]  envelopes     prefix
-- KEYS[19]  outputs       prefix
-- KEYS[20]  nudges        prefix
-- ARGV[1]   token         str
-- ARGV[2]   most          int   at most 500
-- Returns   {"ok", said, deleted, in all, token}   "more" | "empty" | "missing" | "conflicted", with the token under way
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], completed = KEYS[6],
  failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10], wake = KEYS[11], parked = KEYS[12],
  held_keys = KEYS[13], cron_at = KEYS[14], parked_types = KEYS[15], held_jobs = KEYS[16], records = KEYS[17],
  envelopes = KEYS[18], outputs = KEYS[19], nudges = KEYS[20]}
--- @include "open"
--- @include "forget"
--- @include "nudge"
--- @include "pick_jobs"
--- @include "remove_all"
--- @include "unlink_all"
--- @include "when_full"
local S = open(K)
if S.wrong then return S.wrong end
local meta = redis.call("HMGET", K.meta, "oblit", "obliterated", "schema")
if not meta[3] then return {"ok", "missing", 0, 0, ""} end
if meta[1] and meta[1] ~= ARGV[1] then return {"ok", "conflicted", 0, tonumber(meta[2]) or 0, meta[1]} end
when_full(K, S)
if not meta[1] then
  redis.call("HSET", K.meta, "oblit", ARGV[1], "fl", string.gsub(S.flags or "", "o", "") .. "o")
  redis.call("UNLINK", K.wake, K.cron_at)
  -- Their workers would find out with the next renewal.
  for _, id in ipairs(redis.call("ZRANGE", K.lease, 0, 499)) do
    nudge(K, redis.call("HGET", record_key(K.records, id), "w"), "cancel " .. id)
  end
end
local ids, index = pick_jobs(K, tonumber(ARGV[2]))
local total = tonumber(meta[2]) or 0
if not ids then return {"ok", "empty", 0, total, ARGV[1]} end
local keys = {}
for i = 1, #ids do forget(K, keys, ids[i]) end
unlink_all(keys)
remove_all(index, ids)
total = redis.call("HINCRBY", K.meta, "obliterated", #ids)
return {"ok", "more", #ids, total, ARGV[1]}
