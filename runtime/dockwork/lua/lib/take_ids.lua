--- @include "record_key"
--- @include "is_suspect"
--- @include "has_suspect"
--- @include "key_full"
--- @include "start_key"
-- Reads the records and envelopes of `ids` and sorts them into T.taken and T.dropped; writes nothing. Answers
-- how many of the ids were looked at: the reply's byte limit may end it early, never before the first job.
-- A suspect is taken while the worker runs no other; else it is dropped until it may be alone. So is a job whose
-- concurrency key is full, until it is not.
local function take_ids(K, S, W, T, ids)
  local taken, dropped, texts, used = {}, {}, {}, 0
  for i = 1, #ids do
    local id = ids[i]
    local key = record_key(K.records, id)
    local R = redis.call("HMGET", key, "s", "n", "c", "b", "m")
    if R[5] then
      R = redis.call("HMGET", key, "n", "p", "c", "d", "sf", "f", "v", "mr", "to", "x", "cx", "e", "r", "b", "s", "o",
        "u", "rn")
    else
      -- Nothing but the plain fields: eleven look-ups saved.
      R = {R[2], false, R[3], false, false, false, false, false, false, false, false, false, false, R[4], R[1], false}
    end
    local bytes = tonumber(R[14]) or 0
    local crashes, suspect = (tonumber(R[7]) or 0) - (tonumber(R[6]) or 0), false
    if crashes > 0 then
      suspect = is_suspect(S, crashes, redis.call("HGET", key, "mv"))
      if suspect and T.suspect == nil then
        T.suspect = has_suspect(K, S, W)
      end
    end
    if not R[15] then
      dropped[#dropped + 1] = {id, R, "gone"}
    elseif R[11] then
      dropped[#dropped + 1] = {id, R, "cancelled"}
    elseif R[10] and tonumber(R[10]) <= S.ms then
      dropped[#dropped + 1] = {id, R, "expired"}
    elseif suspect and T.suspect then
      dropped[#dropped + 1] = {id, R, "suspect"}
    elseif S.keyed and key_full(S, R, key) then
      dropped[#dropped + 1] = {id, R, "key"}
    elseif bytes > T.bytes and (T.count > 0 or #taken > 0) then
      break
    else
      T.bytes = T.bytes - bytes
      if suspect then
        T.suspect = id
      end
      if R.k then
        start_key(S, R)
      end
      R.id, R.key = id, key
      taken[#taken + 1] = R
      texts[#taken] = record_key(K.envelopes, id)
    end
    used = i
  end
  if #taken > 0 then
    T.texts = redis.call("MGET", unpack(texts))
  end
  T.taken, T.dropped = taken, dropped
  return used
end
