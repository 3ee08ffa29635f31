-- ZREMs any number of members, in chunks that unpack takes.
local function remove_all(key, members)
  for first = 1, #members, 1000 do
    redis.call("ZREM", key, unpack(members, first, math.min(first + 999, #members)))
  end
end
