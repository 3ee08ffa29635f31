--- @include "record_key"
--- @include "index_of"
--- @include "to_dead"
-- Puts one id right. `indexes` are all that may hold it but those of jobs that wait aside. Answers what was wrong:
-- "no_record", "no_index", "wrong_index", "no_envelope", or nothing.
local function repair_job(K, S, id, indexes)
  local key, R = record_key(K.records, id), {}
  local record = redis.call("HGETALL", key)
  for i = 1, #record, 2 do
    R[record[i]] = record[i + 1]
  end
  local home, score = index_of(K, S, R)
  local there, wrong = false, {}
  for i = 1, #indexes do
    if redis.call("ZSCORE", indexes[i], id) then
      if indexes[i] == home then there = true else wrong[#wrong + 1] = indexes[i] end
    end
  end
  local aside = R.k and record_key(K.held_jobs, R.k)
  if aside and redis.call("ZSCORE", aside, id) then
    if (home == K.ready or home == K.prio) and not there then there = true else wrong[#wrong + 1] = aside end
  end
  for i = 1, #wrong do
    redis.call("ZREM", wrong[i], id)
    S.wrote = true
  end
  if not R.s then
    local gone = redis.call("UNLINK", record_key(K.envelopes, id), record_key(K.outputs, id), key)
      + redis.call("ZREM", K.expiry, id)
    S.wrote = S.wrote or gone > 0
    return (#wrong > 0 or gone > 0) and "no_record" or nil
  end
  local ended = K[R.s] == home and R.h
  if home and not ended and redis.call("EXISTS", record_key(K.envelopes, id)) == 0 then
    redis.call("ZREM", home, id)
    redis.call("ZREM", K.expiry, id)
    S.wrote = true
    to_dead(K, S, id, "dead", "no_envelope", tonumber(R.b) or 0)
    return "no_envelope"
  end
  if home and not there then
    redis.call("ZADD", home, score, id)
    if R.s == "parked" then redis.call("HSETNX", K.parked, R.pt or R.n, "0") end
    S.wrote = true
    S.claimable = S.claimable + 1
    return "no_index"
  end
  return #wrong > 0 and "wrong_index" or nil
end
