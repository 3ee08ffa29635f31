-- Forgets workers silent for 60 s, quiesce requests that are over, and, of more than 1,000 job types, the one seen
-- longest ago.
local function trim_workers(K, S)
  local beats = redis.call("HGETALL", K.workers)
  for i = 1, #beats, 2 do
    local beat_ms = tonumber(string.match(beats[i + 1], "^%d+"))
    if not beat_ms or beat_ms < S.ms - 60000 then
      redis.call("HDEL", K.workers, beats[i])
    end
  end
  local requests = redis.call("HGETALL", K.quiesce)
  for i = 1, #requests, 2 do
    if tonumber(string.match(requests[i + 1], "^%d+")) <= S.ms then
      redis.call("HDEL", K.quiesce, requests[i])
    end
  end
  if redis.call("HLEN", K.types) > 1000 then
    local types, oldest, oldest_ms = redis.call("HGETALL", K.types), nil, S.ms + 1
    for i = 1, #types, 2 do
      local seen_ms = tonumber(string.match(types[i + 1], "^%d+"))
      if seen_ms < oldest_ms then
        oldest, oldest_ms = types[i], seen_ms
      end
    end
    redis.call("HDEL", K.types, oldest)
  end
end
