-- What limits the queue has and how far they are used. Only queues with `flags` pay for the look-ups; a letter each:
-- r rate, c concurrency, k jobs with a concurrency key, s closed by hand, o about to be obliterated.
-- `throttled` is the time until which the rate lets nothing start, `told` the one that a marker was posted for.
local function load_limits(K, S, flags)
  local found = redis.call("HMGET", K.meta, "rate", "concurrency", "per_key", "thr", "thm", "hr", "hp")
  S.flags = flags
  if found[1] then
    local count, per = string.match(found[1], "^(%d+)/(%d+)$")
    S.rate = {count = tonumber(count), per = tonumber(per)}
  end
  S.concurrency, S.per_key = tonumber(found[2]), tonumber(found[3]) or 1
  S.throttled, S.told = tonumber(found[4]) or 0, tonumber(found[5]) or 0
  S.held_ready, S.held_prio = tonumber(found[6]) or 0, tonumber(found[7]) or 0
  S.limits = {S.throttled, S.told, S.held_ready, S.held_prio}
  S.keyed = string.find(flags, "k", 1, true) and true
  S.keys = {}
  if string.find(flags, "s", 1, true) then
    S.closed = "1"
  end
  if string.find(flags, "o", 1, true) then
    S.closed, S.held = "1", "1"
  end
end
