--- @include "whole"
--- @include "drop_ended"
-- Deletes at most `most` jobs of one index that are older than `age` or beyond `count`, oldest first; -1 is no
-- limit. Jobs kept for ever lie 2^52 ms later. Answers how many.
local function trim_index(K, S, state, age, count, most)
  if most <= 0 then
    return 0
  end
  local forever, old, over = "(4503599627370496", 0, 0
  if age >= 0 then
    old = redis.call("ZCOUNT", K[state], "-inf", whole(S.ms - age))
  end
  if count >= 0 then
    over = redis.call("ZCOUNT", K[state], "-inf", forever) - count
  end
  local number = math.min(math.max(old, over), most)
  if number <= 0 then
    return 0
  end
  drop_ended(K, S, state, redis.call("ZRANGE", K[state], 0, number - 1))
  return number
end
