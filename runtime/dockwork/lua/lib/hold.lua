--- @include "record_key"
--- @include "note"
--- @include "when_full"
-- Checks a lease that is about to write an output: "ok", "cancel" or "lost". A job that was only active is marked
-- as started, and its record says that it has outputs.
local function hold(K, S, id, epoch)
  local key = record_key(K.records, id)
  local seen = redis.call("HMGET", key, "e", "s", "cx")
  if seen[1] ~= epoch or (seen[2] ~= "active" and seen[2] ~= "processing") then
    return "lost"
  end
  when_full(K, S)
  if seen[2] == "active" then
    redis.call("HSET", key, "s", "processing", "t", S.now, "o", "1", "m", "1")
    note(S, "processing", id)
  else
    redis.call("HSET", key, "o", "1", "m", "1")
  end
  return seen[3] and "cancel" or "ok"
end
