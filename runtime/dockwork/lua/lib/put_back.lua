--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "tally_type"
--- @include "note"
--- @include "note_error"
--- @include "lost_failure"
--- @include "place"
--- @include "to_dead"
--- @include "pod_of"
--- @include "is_suspect"
--- @include "set_aside"
--- @include "leave_key"
-- Ends one delivery without an outcome; the caller has taken the lease away. `R` is the record's fields n, p,
-- q, v, mv, i, w, b, x, s, f in that order. how: cause (the interruption counted), charge (the delivery counts:
-- the last allowed one buries, one before sets the job aside as a suspect), stalled (an event of that name first),
-- back (a new seq), reason. Answers "returned", "buried" or "gone".
local function put_back(K, S, id, R, how)
  if not R[10] then
    tally(S.stats, "orphans", 1)
    return "gone"
  end
  local key, deliveries = record_key(K.records, id), tonumber(R[4]) or 0
  if R[7] then
    tally(S.leased, pod_of(R[7]), -1)
  end
  if S.concurrency then
    -- Also where the job itself does not come back: its place is free.
    S.woken = (S.woken or 0) + 1
  end
  if S.keyed then
    leave_key(S, id, "running")
  end
  tally(S.stats, "interrupted:" .. how.cause, 1)
  if how.stalled then
    note(S, "stalled", id, how.cause)
  end
  -- A delivery that ended as a failed attempt is charged by the limit of attempts, not by this one.
  local crashes = deliveries - (tonumber(R[11]) or 0)
  if how.charge and crashes >= (tonumber(R[5]) or S.max_deliveries) then
    redis.call("HDEL", key, "w", "t")
    to_dead(K, S, id, "dead", "max_deliveries", tonumber(R[8]) or 0,
      {"i", whole((tonumber(R[6]) or 0) + 1)})
    tally_type(S, R[1], "d", 1)
    note_error(S, id, R[1], deliveries, "d", lost_failure(S, R[7] or "", how.cause))
    return "buried"
  end
  if not how.charge then
    deliveries = deliveries - 1
  end
  local seq = tonumber(R[3])
  if how.back then
    S.seq = S.seq + 1
    seq = S.seq
  end
  redis.call("HDEL", key, "w", "t")
  redis.call("HSET", key, "q", whole(seq), "v", whole(deliveries), "i", whole((tonumber(R[6]) or 0) + 1), "m", "1")
  if how.charge and is_suspect(S, crashes, R[5]) then
    set_aside(S, key, id, seq, math.min(1000 * 2 ^ math.max(crashes - 2, 0), 60000))
  else
    redis.call("HSET", key, "s", place(S, id, tonumber(R[2]) or 0, seq, how.reason), "r", S.now)
  end
  if R[9] then
    if R[10] == "processing" then
      -- It was started in time; only the recovery is late.
      redis.call("HDEL", key, "x")
    else
      S.expiry[#S.expiry + 1] = R[9]
      S.expiry[#S.expiry + 1] = id
    end
  end
  return "returned"
end
