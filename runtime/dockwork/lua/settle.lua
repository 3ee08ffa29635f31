-- Ends deliveries by their outcomes, each fenced by its epoch, then claims the next jobs in the same step.
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
-- KEYS[17]  parked        hash
-- KEYS[18]  quiesce       hash
-- KEYS[19]  leased        hash
-- KEYS[20]  minutes       prefix
-- KEYS[21]  records       prefix
-- KEYS[22]  envelopes     prefix
-- KEYS[23]  outputs       prefix
-- KEYS[24]  parked_types  prefix
-- KEYS[25]  receipts      prefix
-- KEYS[26]  cron          hash
-- KEYS[27]  cron_at       zset
-- KEYS[28]  tick          zset
-- KEYS[29]  plans         prefix
-- ARGV[1]   number        int   of this call, per owner; known: the stored answer comes again
-- ARGV[2]   places        int   jobs to claim at most, 0 to 500
-- ARGV[3]   owner         str   <pod>/<boot>
-- ARGV[4]   pod           str
-- ARGV[5]   run_id        str
-- ARGV[6]   known         str   job types this worker takes from parked, joined by newlines
-- ARGV[7]   most_bytes    int
-- ARGV[8]   lease_ms      int   0 = the queue's
-- ARGV[9]   settlements   int   at most 500
-- ARGV[10+] id, epoch, started_ms, outcome, value...    per settlement; the outcome is a letter and then one
--           letter per value that follows, see read_settlement
-- Returns   as claim, with a letter per settlement in place of "": "o" done, "l" lost
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5],
  completed = KEYS[6], failed = KEYS[7], dead = KEYS[8], expired = KEYS[9], cancelled = KEYS[10],
  expiry = KEYS[11], wake = KEYS[12], cold = KEYS[13], events = KEYS[14], stats = KEYS[15],
  type_stats = KEYS[16], parked = KEYS[17], quiesce = KEYS[18], leased = KEYS[19], minutes = KEYS[20],
  records = KEYS[21], envelopes = KEYS[22], outputs = KEYS[23], parked_types = KEYS[24], receipts = KEYS[25],
  cron = KEYS[26], cron_at = KEYS[27], tick = KEYS[28], plans = KEYS[29]}
--- @include "open"
--- @include "claimant"
--- @include "recall"
--- @include "tick_first"
--- @include "read_settlements"
--- @include "settle_all"
--- @include "take"
--- @include "finish"
--- @include "remember"
--- @include "answer"
local S = open(K)
if S.wrong then return S.wrong end
local W = claimant(1)
local known = recall(K, S, W)
if known then return known end
S = tick_first(K, S, W)
local settlements, verdicts = read_settlements(K, 9)
settle_all(K, S, W, settlements)
local claimed, receipt = take(K, S, W)
finish(K, S)
remember(K, W, verdicts, receipt)
return answer(S, verdicts, claimed)
