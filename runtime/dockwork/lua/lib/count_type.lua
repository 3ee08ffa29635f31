-- Adds `number`, a text, to the figure `letter` of a job type. 1,000 types with five figures each are kept; a type beyond
-- them counts as "other".
local function count_type(type_stats, kind, letter, number)
  local call, field = redis.call, kind .. "|" .. letter
  if call("HINCRBY", type_stats, field, number) == tonumber(number) and call("HLEN", type_stats) > 5000 then
    call("HDEL", type_stats, field)
    call("HINCRBY", type_stats, "other|" .. letter, number)
  end
end
