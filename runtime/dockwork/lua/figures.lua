-- What a queue did minute by minute: arrivals, finished runs and their run time.
-- KEYS[1]   meta      hash
-- KEYS[2]   minutes   prefix
-- ARGV[1]   minutes   int   1 to 2880: so many, the running one included
-- Returns   {"ok", now_ms, figures...}    an hour's number and its HGETALL by turns; fields "<minute><a | f | r>"
local K = {meta = KEYS[1], minutes = KEYS[2]}
--- @include "open"
--- @include "whole"
--- @include "record_key"
local S = open(K)
if S.wrong then return S.wrong end
local now = math.floor(S.ms / 60000)
local reply = {"ok", S.now}
for hour = math.floor((now - tonumber(ARGV[1]) + 1) / 60), math.floor(now / 60) do
  local found = redis.call("HGETALL", record_key(K.minutes, whole(hour)))
  if #found > 0 then
    reply[#reply + 1], reply[#reply + 2] = whole(hour), found
  end
end
return reply
