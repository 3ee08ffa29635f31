-- ZADDs a list of score, member, score, member, in chunks that unpack takes; then empties it.
local function add_all(key, pairs_list)
  local size = #pairs_list
  for first = 1, size, 1000 do
    redis.call("ZADD", key, unpack(pairs_list, first, math.min(first + 999, size)))
  end
  for i = size, 1, -1 do
    pairs_list[i] = nil
  end
end
