-- Moves delayed jobs to ready or prioritized: those that are due, oldest first, or the ids given, due or not.
-- KEYS[1]   meta        hash
-- KEYS[2]   ready       zset
-- KEYS[3]   prio        zset
-- KEYS[4]   delayed     zset
-- KEYS[5]   wake        zset
-- KEYS[6]   cold        string
-- KEYS[7]   events      stream
-- KEYS[8]   stats       hash
-- KEYS[9]   minutes     prefix
-- KEYS[10]  records     prefix
-- KEYS[11]  lease       zset
-- KEYS[12]  key_counts  hash
-- KEYS[13]  held_keys   hash
-- KEYS[14]  held_jobs   prefix
-- ARGV[1]   most       int   due jobs at most, 200; 0 = only the ids
-- ARGV[2+]  job_id     str   at most 200
-- Returns   {"ok", moved}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], wake = KEYS[5], cold = KEYS[6],
  events = KEYS[7], stats = KEYS[8], minutes = KEYS[9], records = KEYS[10], lease = KEYS[11], key_counts = KEYS[12],
  held_keys = KEYS[13], held_jobs = KEYS[14]}
--- @include "open"
--- @include "promote_due"
--- @include "move_delayed"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local moved = 0
if tonumber(ARGV[1]) > 0 then
  moved = promote_due(K, S, tonumber(ARGV[1]))
else
  local ids, seen = {}, {}
  for i = 2, #ARGV do
    if not seen[ARGV[i]] and redis.call("ZSCORE", K.delayed, ARGV[i]) then
      ids[#ids + 1] = ARGV[i]
      seen[ARGV[i]] = true
    end
  end
  if #ids > 0 then moved = move_delayed(K, S, ids, "now") end
end
if S.wrote then finish(K, S) end
return {"ok", moved}
