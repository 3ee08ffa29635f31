-- Closes a queue to new jobs by hand, or opens it again, if it is as expected. A Queue resource that closes it is
-- another flag: the queue is open when neither does.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- ARGV[1]   expected  int   1 = closed by hand, 0 = not
-- ARGV[2]   wanted    int
-- Returns   {"ok", 1 | 0}    0 = it was not as expected
local K = {meta = KEYS[1], wake = KEYS[2]}
--- @include "open"
--- @include "when_full"
local S = open(K)
if S.wrong then return S.wrong end
local flags = S.flags or ""
local closed = string.find(flags, "s", 1, true) and "1" or "0"
if closed ~= ARGV[1] then return {"ok", 0} end
if ARGV[1] == ARGV[2] then return {"ok", 1} end
flags = ARGV[2] == "1" and flags .. "s" or string.gsub(flags, "s", "")
when_full(K, S)
if flags == "" then
  redis.call("HDEL", K.meta, "fl")
else
  redis.call("HSET", K.meta, "fl", flags, "schema", "1")
end
return {"ok", 1}
