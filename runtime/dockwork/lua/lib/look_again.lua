-- Lets `free_keys` look at the concurrency keys for which jobs wait aside, a thousand at most.
local function look_again(K, S)
  S.freed = {}
  local keys = redis.call("HKEYS", K.held_keys)
  for i = 1, math.min(#keys, 1000) do
    S.freed[keys[i]] = true
  end
end
