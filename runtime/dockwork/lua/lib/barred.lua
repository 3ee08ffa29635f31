--- @include "whole"
--- @include "when_full"
-- Whether the queue's limits let nobody take what just became claimable. Where the rate does, one marker for the end
-- of the wait is posted in place of those for now.
local function barred(K, S)
  if S.concurrency and redis.call("ZCARD", K.lease) >= S.concurrency then
    return true
  end
  if S.rate and S.throttled > S.ms then
    if S.told ~= S.throttled then
      when_full(K, S)
      redis.call("ZADD", K.wake, whole(S.throttled), "rate")
      redis.call("HSET", K.meta, "thm", whole(S.throttled))
      S.told = S.throttled
    end
    return true
  end
  return false
end
