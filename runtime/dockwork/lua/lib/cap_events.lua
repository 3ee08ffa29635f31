--- @include "whole"
-- Holds the event stream to its bytes: looked at each 10 s by whichever beat or look of the operator comes first, and
-- cut to 90 % of the cap, never under 100 entries (RT-141). By pcall: a full Redis, or a login without MEMORY, keeps all.
local function cap_events(K, S)
  local length = redis.call("XLEN", K.events)
  if length <= 100 then
    return
  end
  local set = redis.call("HMGET", K.meta, "evat", "evmax")
  if S.ms - (tonumber(set[1]) or 0) < 10000 then
    return
  end
  redis.pcall("HSET", K.meta, "evat", S.now)
  local cap = tonumber(set[2]) or 67108864
  local size = cap > 0 and redis.pcall("MEMORY", "USAGE", K.events, "SAMPLES", "500")
  if type(size) == "number" and size > cap then
    local keep = math.max(math.floor(length * (cap / size) * 0.9), 100)
    redis.pcall("XTRIM", K.events, "MAXLEN", whole(keep))
  end
end
