-- Counts per state from the indexes, totals, flags.
-- KEYS[1]   meta       hash
-- KEYS[2]   ready      zset
-- KEYS[3]   prio       zset
-- KEYS[4]   delayed    zset
-- KEYS[5]   lease      zset
-- KEYS[6]   completed  zset
-- KEYS[7]   failed     zset
-- KEYS[8]   dead       zset
-- KEYS[9]   expired    zset
-- KEYS[10]  cancelled  zset
-- KEYS[11]  stats      hash
-- KEYS[12]  parked     hash
-- KEYS[13]  records    prefix
-- Returns   {"ok", counts, paused, closed, bytes, oldest_ms, revision, stats, parked}
--           counts: ready, prioritized, delayed, active, parked, completed, failed, dead, expired, cancelled
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5],
  completed = KEYS[6], failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10],
  stats = KEYS[11], parked = KEYS[12], records = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "oldest_wait"
local S = open(K)
if S.wrong then return S.wrong end
local counts = {}
for i, key in ipairs({K.ready, K.prio, K.delayed, K.lease}) do
  counts[i] = redis.call("ZCARD", key)
end
counts[5] = S.parked
for i, key in ipairs({K.completed, K.failed, K.dead, K.expired, K.cancelled}) do
  counts[5 + i] = redis.call("ZCARD", key)
end
return {"ok", counts, S.paused and 1 or 0, S.closed and 1 or 0, whole(S.bytes), whole(oldest_wait(K, S)),
  S.revision, redis.call("HGETALL", K.stats), redis.call("HGETALL", K.parked)}
