-- Says where the events of a queue go, and how many bytes its stream may have; what no longer is kept is deleted.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   events    stream
-- ARGV[1]   mode      str   "" = the stream, "pubsub", "off"
-- ARGV[2]   bytes     str   0 = no cap, "" = the default
-- Returns   {"ok"}
local K = {meta = KEYS[1], wake = KEYS[2], events = KEYS[3]}
--- @include "open"
--- @include "when_full"
local S = open(K)
if S.wrong then return S.wrong end
local old = redis.call("HMGET", K.meta, "ev", "evmax")
for i, name in ipairs({"ev", "evmax"}) do
  if ARGV[i] ~= (old[i] or "") then
    when_full(K, S)
    if ARGV[i] == "" then
      redis.call("HDEL", K.meta, name)
    else
      redis.call("HSET", K.meta, name, ARGV[i], "schema", "1")
    end
  end
end
if ARGV[1] ~= "" then redis.call("UNLINK", K.events) end
return {"ok"}
