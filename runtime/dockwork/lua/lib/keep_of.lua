-- How long a completed job stays: its own keep (`none`, `forever`, `<age_ms>,<count>,<bytes>`), else the queue's.
-- Answers {none, shift}: the index is read by time, so a keep of its own moves the job along it. A count or
-- bytes of its own joins C, for trim_completed in this call.
local function keep_of(K, S, C, own)
  if not C.queue then
    C.age, C.queue_count = S.keep_age or 3600000, S.keep_count or 1000
    C.queue = {none = C.queue_count == 0 or C.age == 0, shift = 0}
    C.count = C.queue_count
  end
  if not own then
    return C.queue
  elseif own == "none" then
    return {none = true}
  elseif own == "forever" then
    return {shift = 4503599627370496}
  end
  local age, count, bytes = string.match(own, "^(%d*),(%d*),(%d*)$")
  age, count, bytes = tonumber(age), tonumber(count), tonumber(bytes)
  if age == 0 or count == 0 or bytes == 0 then
    return {none = true}
  end
  if count and (C.count < 0 or count < C.count) then
    C.count = count
  end
  if bytes and (not C.bytes or bytes < C.bytes) then
    C.bytes = bytes
  end
  return {shift = age and C.age > 0 and age - C.age or 0}
end
