-- Puts, refills, replans or suspends a schedule. A new one, one with another schedule, and one that is resumed start now:
-- nothing is due for the past.
-- KEYS[1]   meta        hash
-- KEYS[2]   wake        zset
-- KEYS[3]   cron        hash    uid -> state; uid:entry -> policies; uid:env -> envelope
-- KEYS[4]   cron_at     zset    uid -> next instant, ms
-- KEYS[5]   plans       prefix
-- ARGV[1]   uid         str
-- ARGV[2]   mode        str     put: entry and instants; refill: instants only; neither: suspend, no ticks from now on,
--                                and resume, ticks again from now on
-- ARGV[3]   generation  int     of the object; older than the known one = stale
-- ARGV[4]   hash        str     of schedule, zone and rules
-- ARGV[5]   reset       int     1 = plan the future anew (the zone data changed); the cursor stays
-- ARGV[6]   decided_ms  int     what an earlier ledger had decided; where a new entry begins. 0 = unknown: now
-- ARGV[7]   from_ms     int     instants are all those of the calendar in (from_ms, the last of them]
-- ARGV[8]   left_out    int     older instants in that span that no policy can run: missed
-- ARGV[9]   entry       json    policies and whether it is suspended, without the envelope
-- ARGV[10]  envelope    bytes
-- ARGV[11+] instants    int     ms, rising; at most 2,000
-- Returns   {"ok", "put" | "stale"}
local K = {meta = KEYS[1], wake = KEYS[2], cron = KEYS[3], cron_at = KEYS[4], plans = KEYS[5]}
local uid, mode, generation, hash = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local reset, decided, from = ARGV[5] == "1", tonumber(ARGV[6]), tonumber(ARGV[7])
--- @include "whole"
--- @include "record_key"
--- @include "open"
--- @include "when_full"
--- @include "read_schedule"
--- @include "write_schedule"
local S = open(K)
if S.wrong then return S.wrong end
local state, old = read_schedule(K, uid)
local plan = record_key(K.plans, uid)
local entry = mode == "put" and cjson.decode(ARGV[9]) or old
if mode == "suspend" or mode == "resume" then
  if not state then return {"ok", "stale"} end
  when_full(K, S)
  if mode == "resume" and state.suspended then
    state.cursor = math.max(state.cursor, S.ms)
    redis.call("ZREMRANGEBYSCORE", plan, "-inf", whole(state.cursor))
  end
  state.suspended = mode == "suspend" or nil
  write_schedule(K, uid, state, entry)
  return {"ok", "put"}
end

-- Stale: 1. an older generation of the object; 2. a refill of another schedule, or of none;
-- 3. instants that begin later than the plan ends: what lies between would never be decided.
if state and generation < state.generation or mode == "refill" and (not state or state.hash ~= hash) then
  return {"ok", "stale"}
end
local anew = not state or state.hash ~= hash
if not anew and not reset and not entry.every_ms and from > math.max(state.planned_to, state.cursor) then
  return {"ok", "stale"}
end

-- A worker writes its schedules before it claims: refused, it could not start, and a full queue would never drain.
when_full(K, S)
if not state then
  state = {cursor = decided > 0 and decided or S.ms, planned_to = 0, runs = 0, missed = 0, skipped = 0, active = ""}
elseif anew or (mode == "put" and state.suspended and not entry.suspended) then
  state.cursor = math.max(state.cursor, S.ms)
elseif decided > state.cursor then
  state.lost = decided
end
if anew then
  state.planned_to = 0
end
state.generation, state.hash = generation, hash
if mode == "put" then
  state.refreshed, state.suspended = S.ms, entry.suspended or nil
end
local left_out = tonumber(ARGV[8])
if left_out > 0 and not anew and not state.suspended then
  state.missed = state.missed + left_out
  state.missed_by = state.missed_by or {}
  state.missed_by.Policy = (state.missed_by.Policy or 0) + left_out
end

if mode == "put" then
  redis.call("HSET", K.cron, uid .. ":entry", ARGV[9], uid .. ":env", ARGV[10])
end
if anew then
  redis.call("UNLINK", plan)
elseif reset then
  -- Instants that are due stay as they are; only the future is planned anew.
  redis.call("ZREMRANGEBYSCORE", plan, "(" .. whole(S.ms), "+inf")
  state.planned_to = math.max(state.cursor, math.min(state.planned_to, S.ms))
end
redis.call("ZREMRANGEBYSCORE", plan, "-inf", whole(state.cursor))
local after, added = math.max(state.cursor, state.planned_to), {}
for i = 11, #ARGV do
  local at = tonumber(ARGV[i])
  if at > after then
    added[#added + 1], added[#added + 2] = ARGV[i], ARGV[i]
    state.planned_to = at
  end
end
for first = 1, #added, 1000 do
  redis.call("ZADD", plan, unpack(added, first, math.min(first + 999, #added)))
end
write_schedule(K, uid, state, entry)
return {"ok", "put"}
