--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "note"
-- This worker lacks the job's type or schema: it waits for one that has it, at its old place, uncharged.
local function settle_parked(K, S, J)
  local R = J.record
  redis.call("HDEL", J.key, "w", "t")
  redis.call("HSET", J.key, "s", "parked", "v", whole((tonumber(R[7]) or 1) - 1), "pt", J.P, "m", "1")
  redis.call("ZADD", record_key(K.parked_types, J.P), R[5], J.id)
  redis.call("HINCRBY", K.parked, J.P, "1")
  S.parked = S.parked + 1
  if R[8] then
    S.expiry[#S.expiry + 1] = R[8]
    S.expiry[#S.expiry + 1] = J.id
  end
  note(S, "parked", J.id, J.P)
  tally(S.stats, "parked", 1)
  S.woken = (S.woken or 0) + 1
end
