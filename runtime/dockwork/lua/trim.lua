-- Retention: deletes ended jobs over an age, a count or the bytes that all may keep; forgets silent workers.
-- KEYS[1]   meta       hash
-- KEYS[2]   completed  zset
-- KEYS[3]   failed     zset
-- KEYS[4]   dead       zset
-- KEYS[5]   expired    zset
-- KEYS[6]   cancelled  zset
-- KEYS[7]   workers    hash
-- KEYS[8]   quiesce    hash
-- KEYS[9]   types      hash
-- KEYS[10]  records    prefix
-- KEYS[11]  envelopes  prefix
-- KEYS[12]  outputs    prefix
-- KEYS[13]  key_ids     hash
-- ARGV[1]   most       int   jobs deleted at most, 500
-- Returns   {"ok", deleted}
local K = {meta = KEYS[1], completed = KEYS[2], failed = KEYS[3], dead = KEYS[4], expired = KEYS[5],
  cancelled = KEYS[6], workers = KEYS[7], quiesce = KEYS[8], types = KEYS[9], records = KEYS[10],
  envelopes = KEYS[11], outputs = KEYS[12], key_ids = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "trim_index"
--- @include "trim_bytes"
--- @include "trim_workers"
local S = open(K)
if S.wrong then return S.wrong end
local set = redis.call("HMGET", K.meta, "keep_completed_age", "keep_completed_count", "keep_failed_age",
  "keep_failed_count", "keep_bytes")
local left = tonumber(ARGV[1])
left = left - trim_index(K, S, "completed", tonumber(set[1]) or 3600000, tonumber(set[2]) or 1000, left)
for _, state in ipairs({"failed", "dead", "expired", "cancelled"}) do
  left = left - trim_index(K, S, state, tonumber(set[3]) or 604800000, tonumber(set[4]) or 10000, left)
end
left = left - trim_bytes(K, S, tonumber(set[5]) or 268435456, left)
trim_workers(K, S)
if S.before[3] ~= S.kept or S.before[4] ~= S.kept_completed then
  redis.call("HSET", K.meta, "kept", whole(S.kept), "keptc", whole(S.kept_completed))
end
return {"ok", tonumber(ARGV[1]) - left}
