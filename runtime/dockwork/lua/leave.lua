-- The last word of a worker that goes by its own will: its heartbeat, receipts and nudges go, its figures stay.
-- KEYS[1]   meta      hash
-- KEYS[2]   stats     hash
-- KEYS[3]   workers   hash
-- KEYS[4]   receipts  prefix
-- KEYS[5]   nudges    prefix
-- ARGV[1]   owner     str
-- ARGV[2]   drained   int   jobs that ended during the drain
-- ARGV[3]   requeued  int   jobs put back at its end
-- ARGV[4]   lost      int   jobs whose lease it had lost
-- Returns   {"ok"}
local K = {meta = KEYS[1], stats = KEYS[2], workers = KEYS[3], receipts = KEYS[4], nudges = KEYS[5]}
--- @include "open"
--- @include "record_key"
local S = open(K)
if S.wrong then return S.wrong end
redis.call("HDEL", K.workers, ARGV[1])
redis.call("UNLINK", record_key(K.receipts, ARGV[1]), record_key(K.nudges, ARGV[1]))
for i, field in ipairs({"drained", "abandoned", "lost"}) do
  if tonumber(ARGV[i + 1]) > 0 then
    redis.call("HINCRBY", K.stats, field, ARGV[i + 1])
  end
end
return {"ok"}
