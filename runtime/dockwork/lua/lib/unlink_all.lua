-- UNLINKs any number of keys, in chunks that unpack takes.
local function unlink_all(keys)
  for first = 1, #keys, 1000 do
    redis.call("UNLINK", unpack(keys, first, math.min(first + 999, #keys)))
  end
end
