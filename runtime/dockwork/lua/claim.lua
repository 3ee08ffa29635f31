-- Leases the next jobs to a worker, fenced by a new epoch each; promotes due jobs and reaps first.
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
-- KEYS[11]  expiry        zset
-- KEYS[12]  wake          zset
-- KEYS[13]  cold          string
-- KEYS[14]  events        stream
-- KEYS[15]  stats         hash
-- KEYS[16]  type_stats    hash
-- KEYS[17]  errors        list
-- KEYS[18]  parked        hash
-- KEYS[19]  quiesce       hash
-- KEYS[20]  leased        hash
-- KEYS[21]  minutes       prefix
-- KEYS[22]  records       prefix
-- KEYS[23]  envelopes     prefix
-- KEYS[24]  outputs       prefix
-- KEYS[25]  parked_types  prefix
-- KEYS[26]  receipts      prefix
-- KEYS[27]  cron          hash
-- KEYS[28]  cron_at       zset
-- KEYS[29]  tick          zset
-- KEYS[30]  plans         prefix
-- KEYS[31]  unique        prefix
-- KEYS[32]  rate          hash
-- KEYS[33]  key_counts    hash
-- KEYS[34]  held_keys     hash
-- KEYS[35]  held_jobs     prefix
-- KEYS[36]  key_ids  hash
-- ARGV[1]   number        int   of this call, per owner; known: the stored answer comes again
-- ARGV[2]   places        int   jobs at most, 0 to 500
-- ARGV[3]   owner         str   <pod>/<boot>
-- ARGV[4]   pod           str
-- ARGV[5]   run_id        str   of the server, as this connection saw it
-- ARGV[6]   known         str   job types this worker takes from parked, joined by newlines
-- ARGV[7]   most_bytes    int   of all envelopes together; one job may exceed it
-- ARGV[8]   lease_ms      int   0 = the queue's
-- Returns   {"ok", now_ms, next_at|nil, more, refused, revision, "", claim...}, a claim being {type, priority,
--           created, due, scheduled_for, attempts, deliveries, max_attempts, timeout, id, epoch, envelope,
--           checkpoint}
--- @flat "turn"
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], completed = KEYS[6],
  failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10], expiry = KEYS[11], wake = KEYS[12],
  cold = KEYS[13], events = KEYS[14], stats = KEYS[15], type_stats = KEYS[16], errors = KEYS[17], parked = KEYS[18],
  quiesce = KEYS[19], leased = KEYS[20], minutes = KEYS[21], records = KEYS[22], envelopes = KEYS[23],
  outputs = KEYS[24], parked_types = KEYS[25], receipts = KEYS[26], cron = KEYS[27], cron_at = KEYS[28],
  tick = KEYS[29], plans = KEYS[30], unique = KEYS[31], rate = KEYS[32], key_counts = KEYS[33],
  held_keys = KEYS[34], held_jobs = KEYS[35], key_ids = KEYS[36]}
--- @include "open"
--- @include "claimant"
--- @include "recall"
--- @include "tick_first"
--- @include "take"
--- @include "finish"
--- @include "write_errors"
--- @include "remember"
--- @include "answer"
local S = open(K)
if S.wrong then return S.wrong end
local W = claimant(1)
local known = recall(K, S, W)
if known then return known end
S = tick_first(K, S, W)
local claimed, receipt = take(K, S, W)
finish(K, S)
write_errors(K, S)
if receipt ~= "" then remember(K, W, "", receipt) end
return answer(S, "", claimed)
