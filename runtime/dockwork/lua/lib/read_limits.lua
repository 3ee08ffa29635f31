-- What a queue may hold, and what it holds now; `check_job` uses it up.
local function read_limits(K, S)
  local limits = redis.call("HMGET", K.meta, "max_depth", "max_bytes", "max_payload", "max_timeout")
  return {
    max_depth = tonumber(limits[1]) or 1000000, max_bytes = tonumber(limits[2]) or 2147483648,
    max_payload = tonumber(limits[3]) or 262144, max_timeout = tonumber(limits[4]),
    depth = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio) + redis.call("ZCARD", K.delayed)
      + redis.call("ZCARD", K.lease) + S.parked + (S.limits and S.held_ready + S.held_prio or 0),
  }
end
