--- @include "whole"
--- @include "add_all"
--- @include "drop_ended"
-- Adds what completed to its index and drops the oldest above the count (and bytes) that `keep_of` found.
-- Those kept for ever lie 2^52 ms later and do not count. Bounded: at most 500 in a call, trim does the rest.
-- While work is left, up to a twentieth of the count (50 at most) waits for a later call: one that drops 50 together
-- costs less than 10 that drop five each. A call that finds the queue not heard for a while drops them all.
local function trim_completed(K, S, C, busy)
  local index = S.ended.completed
  if not index then
    return
  end
  add_all(K.completed, index)
  S.ended.completed = nil
  local over, slack = 0, 0
  if C.count >= 0 then
    over = redis.call("ZCARD", K.completed) - C.count
    slack = busy and not S.heard and math.min(C.count / 20, 50) or 0
    if over > slack then
      over = redis.call("ZCOUNT", K.completed, "-inf", "(4503599627370496") - C.count
    end
  end
  if over > slack then
    drop_ended(K, S, "completed", redis.call("ZRANGE", K.completed, 0, math.min(over, 500) - 1))
  end
  local rounds = 0
  while C.bytes and S.kept_completed > C.bytes and rounds < 500 do
    local ids = redis.call("ZRANGEBYSCORE", K.completed, "-inf", "(4503599627370496", "LIMIT", 0, 1)
    if #ids == 0 then
      return
    end
    drop_ended(K, S, "completed", ids)
    rounds = rounds + 1
  end
end
