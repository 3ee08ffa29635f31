--- @include "whole"
--- @include "move_delayed"
-- Moves at most `most` due jobs, oldest first, to ready or prioritized with new seqs. Answers how many, and
-- when the next is due (false: nothing is delayed).
local function promote_due(K, S, most)
  local first = redis.call("ZRANGE", K.delayed, 0, 0, "WITHSCORES")
  if not first[1] then
    return 0, false
  end
  local due = math.floor(tonumber(first[2]) / 1024)
  if due > S.ms then
    return 0, due
  end
  local ids = redis.call("ZRANGEBYSCORE", K.delayed, "-inf", whole(S.ms * 1024 + 1023), "LIMIT", 0, most)
  local moved = move_delayed(K, S, ids, "due")
  first = redis.call("ZRANGE", K.delayed, 0, 0, "WITHSCORES")
  return moved, first[1] and math.floor(tonumber(first[2]) / 1024) or false
end
