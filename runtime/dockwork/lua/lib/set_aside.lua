--- @include "whole"
--- @include "postpone"
-- Lets a suspect wait `delay` ms and a second longer than the one before it in this call, at most a minute, so that
-- suspects of one crash come back one by one. The caller has taken it out of its index.
local function set_aside(S, key, id, seq, delay)
  local due = S.ms + delay + math.min(S.aside * 1000, 60000)
  S.aside = S.aside + 1
  redis.call("HDEL", key, "r", "pt")
  redis.call("HSET", key, "s", "delayed", "d", whole(due), "m", "1")
  postpone(S, id, due, seq, "suspect")
end
