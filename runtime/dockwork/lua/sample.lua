-- One look at a queue for the scaling loop; it counts as a sign that Redis hears somebody (RT-068).
-- KEYS[1]   meta      hash
-- KEYS[2]   ready     zset
-- KEYS[3]   prio      zset
-- KEYS[4]   delayed   zset
-- KEYS[5]   lease     zset
-- KEYS[6]   dead      zset
-- KEYS[7]   cron_at   zset
-- KEYS[8]   wake      zset
-- KEYS[9]   cold      string
-- KEYS[10]  events    stream
-- KEYS[11]  stats     hash
-- KEYS[12]  types     hash
-- KEYS[13]  parked    hash
-- KEYS[14]  workers   hash
-- KEYS[15]  quiesce   hash
-- KEYS[16]  leased    hash
-- KEYS[17]  owner     string
-- KEYS[18]  records   prefix
-- KEYS[19]  parked_types prefix
-- KEYS[20]  key_ids   hash
-- ARGV[1]   horizon_ms int  due within it counts as due soon
-- ARGV[2]   template  str   hash of the pod template, or ""
-- ARGV[3]   channel   str   "" or: mark the queue cold for 60 s, the first claimable job publishes here
-- Returns   {"ok", now_ms, counts, flags, stats, parked, workers, quiesce, leased, parked_first, throttled, limits,
--            sealed, owner|nil}
--           counts: ready, prioritized, delayed, due, due_soon, active, parked, dead, bytes, oldest_ms
--           flags: paused, held, closed, template_known, generation
--           throttled: by pause, rate (beyond the horizon), concurrency, key; limits: rate and concurrency, "" = none
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], dead = KEYS[6],
  cron_at = KEYS[7], wake = KEYS[8], cold = KEYS[9], events = KEYS[10], stats = KEYS[11], types = KEYS[12],
  parked = KEYS[13], workers = KEYS[14], quiesce = KEYS[15], leased = KEYS[16], owner = KEYS[17],
  records = KEYS[18], parked_types = KEYS[19], key_ids = KEYS[20]}
--- @include "open"
--- @include "whole"
--- @include "when_full"
--- @include "hear"
--- @include "oldest_wait"
--- @include "throttled_by"
--- @include "ids_in"
--- @include "cap_events"
local S = open(K)
if S.wrong then return S.wrong end
local horizon = S.ms + tonumber(ARGV[1])
local due = redis.call("ZCOUNT", K.delayed, "-inf", whole(S.ms * 1024 + 1023))
local soon = redis.call("ZCOUNT", K.delayed, "-inf", whole(horizon * 1024 + 1023))
  + redis.call("ZCOUNT", K.cron_at, "-inf", whole(horizon))
local ready, prio = redis.call("ZCARD", K.ready), redis.call("ZCARD", K.prio)
local throttled = throttled_by(K, S, ready, prio, horizon)
ready, prio = ready + (S.held_ready or 0), prio + (S.held_prio or 0)
local counts = {ready, prio, redis.call("ZCARD", K.delayed), due, soon, redis.call("ZCARD", K.lease), S.parked,
  redis.call("ZCARD", K.dead), whole(S.bytes), whole(oldest_wait(K, S))}
local known = 0
if ARGV[2] ~= "" then known = redis.call("HEXISTS", K.types, "@" .. ARGV[2]) end
local generation = redis.call("HGET", K.meta, "gen") or "0"
local flags = {S.paused and 1 or 0, S.held and 1 or 0, S.closed and 1 or 0, known, generation}
local parked_first = S.parked > 0 and ids_in(K, S, "parked", 0, 1)[1] or ""
local reply = {"ok", S.now, counts, flags, redis.call("HGETALL", K.stats), redis.call("HGETALL", K.parked),
  redis.call("HGETALL", K.workers), redis.call("HGETALL", K.quiesce), redis.call("HGETALL", K.leased),
  parked_first, throttled, {S.rate and whole(S.rate.count) .. "/" .. whole(S.rate.per) or "",
  S.concurrency and whole(S.concurrency) or ""}, redis.call("HGETALL", K.key_ids), redis.call("GET", K.owner)}
hear(K, S)
-- A Redis that refuses writes still shows the queue; it has heard nobody then.
if S.set[1] and S.set[1] ~= "schema" and pcall(when_full, K, S) then
  redis.pcall("HSET", K.meta, unpack(S.set))
end
cap_events(K, S)
if ARGV[3] ~= "" then
  when_full(K, S)
  redis.call("SET", K.cold, ARGV[3], "PX", "60000")
end
return reply
