-- Moves the expiry of each lease that the caller still holds, and keeps its heartbeat; a stale epoch changes nothing.
-- KEYS[1]   meta      hash
-- KEYS[2]   ready     zset
-- KEYS[3]   prio      zset
-- KEYS[4]   delayed   zset
-- KEYS[5]   lease     zset
-- KEYS[6]   wake      zset
-- KEYS[7]   cold      string
-- KEYS[8]   workers   hash
-- KEYS[9]   quiesce   hash
-- KEYS[10]  cron_at   zset
-- KEYS[11]  events    stream
-- KEYS[12]  records   prefix
-- KEYS[13]  receipts  prefix
-- ARGV[1]   lease_ms  int   0 = the queue's
-- ARGV[2]   run_id    str   of the server, as this connection saw it
-- ARGV[3]   owner     str   "" = no heartbeat
-- ARGV[4]   pod       str
-- ARGV[5]   beat      str   JSON, opaque here
-- ARGV[6+]  job_id, epoch    a pair per lease, at most 500
-- Returns   {"ok", now_ms, expires_ms, quiesce, revision, next_at|nil, verdicts}    a letter per lease:
--           "o" held, "c" held and to be cancelled, "l" lost
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], wake = KEYS[6],
  cold = KEYS[7], workers = KEYS[8], quiesce = KEYS[9], cron_at = KEYS[10], events = KEYS[11],
  records = KEYS[12], receipts = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "record_key"
--- @include "when_full"
--- @include "quiesced"
--- @include "see_run_id"
--- @include "hear"
--- @include "post_markers"
--- @include "earliest"
--- @include "cap_events"
local S = open(K)
if S.wrong then return S.wrong end
local lease_ms = tonumber(ARGV[1])
-- Also what reaping waits for after a new run id or a silence: the lease that these workers really have.
if lease_ms > 0 then S.lease_ms = lease_ms end
local expires = whole(S.ms + S.lease_ms)
local verdicts, moved = {}, {}
for i = 6, #ARGV, 2 do
  local seen = redis.call("HMGET", record_key(K.records, ARGV[i]), "e", "s", "cx")
  local verdict = "l"
  -- Overdue but not reaped is still held: reaping changes the state, so nobody else has the job.
  if seen[1] == ARGV[i + 1] and (seen[2] == "active" or seen[2] == "processing") then
    moved[#moved + 1] = expires
    moved[#moved + 1] = ARGV[i]
    verdict = seen[3] and "c" or "o"
  end
  verdicts[#verdicts + 1] = verdict
end
local token = ARGV[4] ~= "" and quiesced(K, S, ARGV[4]) or ""
local first = redis.call("ZRANGE", K.delayed, 0, 0, "WITHSCORES")
local due = first[2] and math.floor(tonumber(first[2]) / 1024)
local tick = redis.call("ZRANGE", K.cron_at, 0, 0, "WITHSCORES")
due = earliest(due, tick[2] and tonumber(tick[2]))
local waiting = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio)
if due and due <= S.ms then waiting = waiting + 1 end

when_full(K, S)
see_run_id(S, ARGV[2])
-- Before the leases move: those that ended in a silence count.
hear(K, S)
if #S.set > 0 and S.set[1] ~= "schema" then redis.call("HSET", K.meta, unpack(S.set)) end
if #moved > 0 then redis.call("ZADD", K.lease, "XX", unpack(moved)) end
if ARGV[3] ~= "" then
  redis.call("HSET", K.workers, ARGV[3], S.now .. " " .. ARGV[5])
  redis.call("PEXPIRE", record_key(K.receipts, ARGV[3]), "600000")
end
-- A marker that was lost with its holder comes back within one beat (RT-097).
if waiting > 0 and redis.call("ZCOUNT", K.wake, 0, 0) == 0 then post_markers(K, S, waiting) end
cap_events(K, S)
local ends = redis.call("ZRANGE", K.lease, 0, 0, "WITHSCORES")
local next_at = earliest(due, ends[2] and tonumber(ends[2]))
if S.limits and waiting > 0 and S.throttled > S.ms then next_at = earliest(next_at, S.throttled) end
return {"ok", S.now, expires, token, S.revision, next_at and whole(next_at) or false, table.concat(verdicts)}
