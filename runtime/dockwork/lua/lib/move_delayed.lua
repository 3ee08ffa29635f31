--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "place"
--- @include "remove_all"
--- @include "is_suspect"
-- Moves delayed jobs, whose ids the caller has found in that index, to ready or prioritized. Answers how many.
local function move_delayed(K, S, ids, reason)
  local records, moved = {}, 0
  for i = 1, #ids do
    records[i] = redis.call("HMGET", record_key(K.records, ids[i]), "s", "p", "q", "v", "f", "mv")
  end
  remove_all(K.delayed, ids)
  S.wrote = true
  for i = 1, #ids do
    if records[i][1] then
      local R = records[i]
      local seq = tonumber(R[3])
      -- A suspect goes back to its old place: it waited to be alone, not to be later.
      if not is_suspect(S, (tonumber(R[4]) or 0) - (tonumber(R[5]) or 0), R[6]) then
        S.seq = S.seq + 1
        seq = S.seq
      end
      local state = place(S, ids[i], tonumber(R[2]) or 0, seq, reason)
      local key = record_key(K.records, ids[i])
      if reason == "now" then
        redis.call("HSET", key, "s", state, "q", whole(seq), "r", S.now, "m", "1")
      else
        -- Without "r" a job waits since it was due, however late it is promoted.
        redis.call("HSET", key, "s", state, "q", whole(seq))
      end
      moved = moved + 1
    else
      tally(S.stats, "orphans", 1)
    end
  end
  return moved
end
