-- Says that handlers began, for jobs that still run a while after their claim.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   events    stream
-- KEYS[4]   records   prefix
-- ARGV[1+]  job_id, epoch    a pair per lease, at most 500
-- Returns   {"ok", verdict...}    "ok" | "cancel" | "lost", in order
local K = {meta = KEYS[1], wake = KEYS[2], events = KEYS[3], records = KEYS[4]}
--- @include "open"
--- @include "record_key"
--- @include "note"
--- @include "when_full"
--- @include "add_events"
local S = open(K)
if S.wrong then return S.wrong end
local reply, held, marks, seen_id = {"ok"}, {}, {}, {}
for i = 1, #ARGV, 2 do
  local key = record_key(K.records, ARGV[i])
  local seen = redis.call("HMGET", key, "e", "s", "cx", "m")
  local verdict = "lost"
  if seen[1] == ARGV[i + 1] and (seen[2] == "active" or seen[2] == "processing") then
    verdict = seen[3] and "cancel" or "ok"
    if seen[2] == "active" and not seen_id[ARGV[i]] then
      seen_id[ARGV[i]] = true
      held[#held + 1] = key
      -- What else there is to say of the record, and the start again: see flat/turn.lua.
      local letter = seen[4] and string.sub(seen[4], 1, 1) or "o"
      marks[#held] = letter == "o" and "t" .. S.now or letter == "n" and "u" .. S.now or "1"
      note(S, "processing", ARGV[i])
    end
  end
  reply[#reply + 1] = verdict
end
if #held > 0 then
  when_full(K, S)
  for i = 1, #held do
    redis.call("HSET", held[i], "s", "processing", "t", S.now, "m", marks[i])
  end
  add_events(K, S)
end
return reply
