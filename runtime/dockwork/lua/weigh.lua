-- What some jobs add to the queue's counters; `recount` writes the sums.
-- KEYS[1]   meta      hash
-- KEYS[2]   ready     zset
-- KEYS[3]   prio      zset
-- KEYS[4]   stats     hash
-- KEYS[5]   records   prefix
-- ARGV[1+]  job_id    str    at most 200; none: only the mark
-- Returns   {"ok", mark, bytes, kept, kept_completed, {concurrency key...}, {sealing key...}}   a concurrency key for
--           each job that may be claimed, a sealing key for each job that it seals
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], stats = KEYS[4], records = KEYS[5]}
--- @include "record_key"
--- @include "whole"
--- @include "stock_mark"
local bytes, kept, kept_completed = 0, 0, 0
local reply, keys, sealed = {"ok", stock_mark(K), 0, 0, 0}, {}, {}
for i = 1, #ARGV do
  local R = redis.call("HMGET", record_key(K.records, ARGV[i]), "s", "b", "kb", "k", "z")
  if R[1] == "completed" then
    kept_completed = kept_completed + (tonumber(R[3]) or 0)
  elseif R[1] == "failed" or R[1] == "dead" or R[1] == "expired" or R[1] == "cancelled" then
    kept = kept + (tonumber(R[3]) or 0)
  elseif R[1] then
    bytes = bytes + (tonumber(R[2]) or 0)
  end
  local index = R[1] == "ready" and K.ready or R[1] == "prioritized" and K.prio
  if R[4] and index and redis.call("ZSCORE", index, ARGV[i]) then
    keys[#keys + 1] = R[4]
  end
  local seen = {}
  for id in string.gmatch(R[5] or "", "%l([^,]*)") do
    if not seen[id] then
      seen[id] = true
      sealed[#sealed + 1] = id
    end
  end
end
reply[3], reply[4], reply[5] = whole(bytes), whole(kept), whole(kept_completed)
reply[6], reply[7] = keys, sealed
return reply
