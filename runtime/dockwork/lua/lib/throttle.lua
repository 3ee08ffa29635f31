--- @include "whole"
--- @include "when_full"
--- @include "count_starts"
-- After a claim that took `count` jobs: what the limits let nobody take is no work left for others. Answers when the
-- rate lets something start again that waits now, or nothing; one marker for that moment wakes one worker then.
local function throttle(K, S, T, L, count)
  if L.left - count <= 0 then
    T.more = false
  end
  if not L.buckets then
    return
  end
  if count > 0 or L.buckets.anew then
    when_full(K, S)
  end
  S.throttled = count_starts(K, S, L.buckets, count)
  if S.throttled > S.ms and redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio) > 0 then
    if S.told ~= S.throttled then
      when_full(K, S)
      redis.call("ZADD", K.wake, whole(S.throttled), "rate")
      S.told = S.throttled
    end
    return S.throttled
  end
end
