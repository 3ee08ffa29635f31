-- Decides the due instants of one schedule, or of all that are due (8 at most; ask again while it says more).
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   delayed     zset
-- KEYS[5]   lease       zset
-- KEYS[6]   expiry      zset
-- KEYS[7]   wake        zset
-- KEYS[8]   cold        string
-- KEYS[9]   events      stream
-- KEYS[10]  stats       hash
-- KEYS[11]  minutes     prefix
-- KEYS[12]  records     prefix
-- KEYS[13]  envelopes   prefix
-- KEYS[14]  cron        hash    uid -> state; uid:entry -> policies; uid:env -> envelope
-- KEYS[15]  cron_at     zset    uid -> next instant, ms
-- KEYS[16]  tick        zset    "uid:instant" of the jobs made, all with score 0
-- KEYS[17]  plans       prefix
-- KEYS[18]  key_counts  hash
-- KEYS[19]  held_keys   hash
-- KEYS[20]  held_jobs   prefix
-- KEYS[21]  key_ids     hash
-- ARGV[1]   uid         str     "" = all that are due
-- ARGV[2]   by          str     who ticks: operator or worker
-- Returns   {"ok", more, decided...}    more: 1 if others are due; decided: uid, instant ms, outcome, reason, job id
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], minutes = KEYS[11], records = KEYS[12],
  envelopes = KEYS[13], cron = KEYS[14], cron_at = KEYS[15], tick = KEYS[16], plans = KEYS[17],
  key_counts = KEYS[18], held_keys = KEYS[19], held_jobs = KEYS[20], key_ids = KEYS[21]}
--- @include "whole"
--- @include "open"
--- @include "tick_schedule"
--- @include "tick_due"
local S = open(K)
if S.wrong then return S.wrong end
local ticked
if ARGV[1] == "" then
  ticked = tick_due(K, ARGV[2])
else
  ticked = {{ARGV[1], tick_schedule(K, ARGV[1], ARGV[2])}}
end
local reply = {"ok", #ticked == 8 and 1 or 0}
for i = 1, #ticked do
  local uid, ticks, failure = ticked[i][1], ticked[i][2], ticked[i][3]
  -- The newest 100 of a schedule are told; its counters have all.
  for n = math.max(1, #ticks - 99), #ticks do
    local tick, size = ticks[n], #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = uid, whole(tick.at), tick.outcome
    reply[size + 4], reply[size + 5] = tick.reason or "", tick.id or ""
  end
  if failure then
    local size = #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = uid, "0", "failed"
    reply[size + 4], reply[size + 5] = failure, ""
  end
end
return reply
