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
-- Returns   {"ok", counts, paused, closed, bytes, oldest_ms, revision, stats, parked, throttled}
--           counts: ready, prioritized, delayed, active, parked, completed, failed, dead, expired, cancelled
--           throttled: by pause, rate, concurrency, key
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5],
  completed = KEYS[6], failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10],
  stats = KEYS[11], parked = KEYS[12], records = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "oldest_wait"
--- @include "throttled_by"
local S = open(K)
if S.wrong then return S.wrong end
local counts = {}
for i, key in ipairs({K.ready, K.prio, K.delayed, K.lease}) do
  counts[i] = redis.call("ZCARD", key)
end
local throttled = throttled_by(K, S, counts[1], counts[2], S.ms)
counts[1], counts[2] = counts[1] + (S.held_ready or 0), counts[2] + (S.held_prio or 0)
counts[5] = S.parked
for i, key in ipairs({K.completed, K.failed, K.dead, K.expired, K.cancelled}) do
  counts[5 + i] = redis.call("ZCARD", key)
end
return {"ok", counts, S.paused and 1 or 0, S.closed and 1 or 0, whole(S.bytes), whole(oldest_wait(K, S)),
  S.revision, redis.call("HGETALL", K.stats), redis.call("HGETALL", K.parked), throttled}
