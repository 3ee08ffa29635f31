--- @include "whole"
--- @include "record_key"
-- Lets a job wait aside, at its own place, while its concurrency key is full. Its state stays what it is.
local function hold_back(S, id, key, score)
  redis.call("ZADD", record_key(S.K.held_jobs, key), whole(score), id)
  redis.call("HINCRBY", S.K.held_keys, key, "1")
  if score >= 0 and score < 17592186044416 then
    S.held_ready = S.held_ready + 1
  else
    S.held_prio = S.held_prio + 1
  end
end
