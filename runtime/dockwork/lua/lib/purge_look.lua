--- @include "whole"
-- What of one index of ended jobs a purge means: how many ended by `before`, and a digest that changes with them.
local function purge_look(K, state, before)
  local last = "(" .. whole(before + 1)
  local count = redis.call("ZCOUNT", K[state], "-inf", last)
  local first = redis.call("ZRANGE", K[state], 0, 0, "WITHSCORES")
  local final = redis.call("ZREVRANGEBYSCORE", K[state], last, "-inf", "LIMIT", 0, 1)[1]
  local said = {state, whole(before), whole(count), count > 0 and first[1] or "", count > 0 and first[2] or "", final or ""}
  return count, redis.sha1hex(table.concat(said, "\n"))
end
