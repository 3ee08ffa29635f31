--- @include "whole"
--- @include "record_key"
--- @include "count_type"
-- Writes the totals, the figures per type and per minute, and the leases per pod that this call collected.
local function write_counters(K, S)
  for field, number in pairs(S.stats) do
    redis.call("HINCRBY", K.stats, field, whole(number))
  end
  -- Histograms: w<b> waits, u<b> runs; see bucket.
  for exponent, number in pairs(S.waits) do
    redis.call("HINCRBY", K.stats, "w" .. exponent, number)
  end
  for exponent, number in pairs(S.runs) do
    redis.call("HINCRBY", K.stats, "u" .. exponent, number)
  end
  for kind, figures in pairs(S.types) do
    for letter, number in pairs(figures) do
      count_type(K.type_stats, kind, letter, whole(number))
    end
  end
  if next(S.minute) then
    local minutes = math.floor(S.ms / 60000)
    local hour = record_key(K.minutes, whole(math.floor(minutes / 60)))
    for kind, number in pairs(S.minute) do
      local total = redis.call("HINCRBY", hour, whole(minutes % 60) .. kind, whole(number))
      if total == number then
        -- 48 hours from its last minute on.
        redis.call("PEXPIRE", hour, "176400000")
      end
    end
  end
  for pod, number in pairs(S.leased) do
    if number ~= 0 and redis.call("HINCRBY", K.leased, pod, whole(number)) <= 0 then
      redis.call("HDEL", K.leased, pod)
    end
  end
end
