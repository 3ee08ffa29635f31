--- @include "mark_of"
-- Fields and values of a new job's record for options that a job type declares: attempts, deliveries, timeout, keep.
-- Nil for any other, and for a timeout that the queue refuses.
local function plain_options(text)
  local fields, set, size = {}, {}, 0
  for name, value in string.gmatch(text, "(%l+)=([^;]*)") do
    if name ~= "mr" and name ~= "mv" and name ~= "to" and name ~= "kp" then return nil end
    if name == "to" and tonumber(value) > (tonumber(redis.call("HGET", KEYS[1], "max_timeout")) or math.huge) then
      return nil
    end
    fields[size + 1], fields[size + 2] = name, value
    set[name], size = value, size + 2
  end
  fields[size + 1], fields[size + 2] = "m", mark_of(set)
  return fields
end
