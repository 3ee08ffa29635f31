--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "note"
--- @include "see_run_id"
--- @include "hear"
--- @include "put_back"
--- @include "remove_all"
-- Takes back at most `most` jobs whose lease is over, oldest first. Answers returned, buried, and when the
-- next look is worth it (a lease end, or the end of the wait after a new run id or a silence), false if nothing is leased.
local function reap_ended(K, S, run_id, most)
  see_run_id(S, run_id)
  hear(K, S)
  local first = redis.call("ZRANGE", K.lease, 0, 0, "WITHSCORES")
  if not first[1] then
    return 0, 0, false
  end
  local ends = tonumber(first[2])
  if ends > S.ms or S.ms < S.reap_after then
    return 0, 0, math.max(ends, S.reap_after)
  end
  local ids = redis.call("ZRANGEBYSCORE", K.lease, "-inf", S.now, "LIMIT", 0, most)
  local records = {}
  for i = 1, #ids do
    records[i] = redis.call("HMGET", record_key(K.records, ids[i]), "n", "p", "q", "v", "mv", "i", "w", "b", "x", "s",
      "f", "e")
  end
  remove_all(K.lease, ids)
  S.wrote = true
  local returned, buried = 0, 0
  for i = 1, #ids do
    local ended = put_back(K, S, ids[i], records[i], {cause = "lease_expired", charge = true, stalled = true})
    if ended == "returned" then
      returned = returned + 1
    elseif ended == "buried" then
      buried = buried + 1
    end
  end
  local after = redis.call("ZRANGE", K.lease, 0, 0, "WITHSCORES")
  return returned, buried, after[2] and tonumber(after[2]) or false
end
