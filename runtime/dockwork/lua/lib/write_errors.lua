-- Writes the error reports that this call collected; the last 200 of the queue stay.
local function write_errors(K, S)
  if S.errors then
    redis.call("LPUSH", K.errors, unpack(S.errors))
    redis.call("LTRIM", K.errors, 0, 199)
    S.errors = nil
  end
end
