--- @include "record_key"
-- Takes a job that waits aside out of there. Answers whether it was.
local function unhold(S, id, key, score)
  local held = record_key(S.K.held_jobs, key)
  score = score or tonumber(redis.call("ZSCORE", held, id) or nil)
  if not score or redis.call("ZREM", held, id) == 0 then
    return false
  end
  if redis.call("HINCRBY", S.K.held_keys, key, "-1") <= 0 then
    redis.call("HDEL", S.K.held_keys, key)
  end
  if score >= 0 and score < 17592186044416 then
    S.held_ready = S.held_ready - 1
  else
    S.held_prio = S.held_prio - 1
  end
  return true
end
