--- @include "rate_buckets"
-- How many jobs the queue's limits let a claim take now: {left, rate's buckets or nothing}.
local function limit_places(K, S)
  local L = {left = 1000000}
  if S.concurrency then
    L.left = S.concurrency - redis.call("ZCARD", K.lease)
  end
  if S.rate then
    L.buckets = rate_buckets(K, S)
    L.left = math.min(L.left, S.rate.count - L.buckets.used)
  end
  L.left = math.max(L.left, 0)
  return L
end
