--- @include "whole"
-- Enters `count` starts into the rate's buckets. Answers until when nothing may start, 0 if something may.
local function count_starts(K, S, B, count)
  if B.anew then
    redis.call("DEL", K.rate)
    local flat = {"w", whole(B.width)}
    for bucket, starts in pairs(B.counts) do
      flat[#flat + 1], flat[#flat + 2] = whole(bucket), whole(starts)
    end
    redis.call("HSET", K.rate, unpack(flat))
  elseif #B.stale > 0 and count > 0 then
    redis.call("HDEL", K.rate, unpack(B.stale))
  end
  if count > 0 then
    redis.call("HINCRBY", K.rate, whole(B.at), whole(count))
    B.counts[B.at] = (B.counts[B.at] or 0) + count
    B.used = B.used + count
  end
  local over = B.used - S.rate.count
  if over < 0 then
    return 0
  end
  local order = {}
  for bucket in pairs(B.counts) do
    order[#order + 1] = bucket
  end
  table.sort(order)
  for i = 1, #order do
    over = over - B.counts[order[i]]
    if over < 0 then
      return (order[i] + 1) * B.width + S.rate.per
    end
  end
  return 0
end
