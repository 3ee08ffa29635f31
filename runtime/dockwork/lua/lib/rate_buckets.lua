--- @include "whole"
-- The starts that still count towards the rate: {width, at, used, counts by bucket, stale fields}. A bucket is a
-- hundredth of the period, and is free again when all of it lies outside the window: no window sees too many starts.
-- Buckets of another width (the rate was changed) or of the future (the clock was set back) move to those of now.
local function rate_buckets(K, S)
  local width = math.ceil(S.rate.per / 100)
  local B = {width = width, at = math.floor(S.ms / width), used = 0, counts = {}, stale = {}, anew = false}
  local flat, was = redis.call("HGETALL", K.rate), width
  for i = 1, #flat, 2 do
    if flat[i] == "w" then
      was = tonumber(flat[i + 1])
    end
  end
  B.anew = was ~= width or #flat == 0
  for i = 1, #flat, 2 do
    if flat[i] ~= "w" then
      local bucket, starts = tonumber(flat[i]), tonumber(flat[i + 1])
      if was ~= width then
        bucket = math.floor(((bucket + 1) * was - 1) / width)
      end
      if bucket > B.at then
        bucket, B.anew = B.at, true
      end
      if (bucket + 1) * width > S.ms - S.rate.per then
        B.counts[bucket] = (B.counts[bucket] or 0) + starts
        B.used = B.used + starts
      else
        B.stale[#B.stale + 1] = flat[i]
      end
    end
  end
  return B
end
