-- Appends lines to a running job's log: the last 100 lines and 16 KiB stay; implies start.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   events    stream
-- KEYS[4]   records   prefix
-- KEYS[5]   outputs   prefix
-- ARGV[1]   job_id    str
-- ARGV[2]   epoch     str
-- ARGV[3]   lines     str   joined by newlines
-- Returns   {"ok", verdict}    "ok" | "cancel" | "lost"
local K = {meta = KEYS[1], wake = KEYS[2], events = KEYS[3], records = KEYS[4], outputs = KEYS[5]}
--- @include "open"
--- @include "record_key"
--- @include "hold"
--- @include "add_events"
local S = open(K)
if S.wrong then return S.wrong end
local output = record_key(K.outputs, ARGV[1])
local old = redis.call("HGET", output, "log")
local verdict = hold(K, S, ARGV[1], ARGV[2])
if verdict ~= "lost" then
  local lines, first, bytes = {}, 1, 0
  for line in string.gmatch((old and old .. "\n" or "") .. ARGV[3], "[^\n]+") do
    lines[#lines + 1] = line
    bytes = bytes + #line + 1
  end
  while #lines - first + 1 > 100 or bytes > 16384 do
    bytes = bytes - #lines[first] - 1
    first = first + 1
  end
  redis.call("HSET", output, "log", table.concat(lines, "\n", first))
  add_events(K, S)
end
return {"ok", verdict}
