--- @include "record_key"
-- Leaves a word for a worker that listens on its own list: at most 100, for 60 s.
local function nudge(K, owner, text)
  if owner then
    local key = record_key(K.nudges, owner)
    redis.call("RPUSH", key, text)
    redis.call("LTRIM", key, "-100", "-1")
    redis.call("PEXPIRE", key, "60000")
  end
end
