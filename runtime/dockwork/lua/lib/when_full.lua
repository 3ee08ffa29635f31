-- Makes the first write one that maxmemory does not refuse: Redis then lets the script's later writes pass,
-- so that running work ends in a full Redis (RT-061). No job has an empty id.
local function when_full(K, S)
  if not S.wrote then
    redis.call("ZREM", K.wake, "")
    S.wrote = true
  end
end
