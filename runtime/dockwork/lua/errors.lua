-- The last error reports of a queue, the newest first, and its figures per job type.
-- KEYS[1]   meta        hash
-- KEYS[2]   type_stats  hash
-- KEYS[3]   errors      list
-- ARGV[1]   limit       int   reports at most, 0 to 200
-- Returns   {"ok", type_stats, report...}    a report: attempt, outcome, job, ms and type in a line, then JSON
local K = {meta = KEYS[1], type_stats = KEYS[2], errors = KEYS[3]}
--- @include "open"
local S = open(K)
if S.wrong then return S.wrong end
local reply = {"ok", redis.call("HGETALL", K.type_stats)}
if tonumber(ARGV[1]) > 0 then
  local reports = redis.call("LRANGE", K.errors, 0, tonumber(ARGV[1]) - 1)
  for i = 1, #reports do
    reply[#reply + 1] = reports[i]
  end
end
return reply
