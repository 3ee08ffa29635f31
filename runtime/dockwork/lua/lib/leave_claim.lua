--- @include "whole"
--- @include "record_key"
--- @include "note"
--- @include "key_state"
--- @include "hold_back"
--- @include "leave_key"
-- A job with a concurrency key that a claim looked at and did not take leaves those that may be claimed. `why`: its key
-- is full, and it waits aside; one that was parked is ready from then on.
local function leave_claim(S, id, R, why)
  local key = record_key(S.K.records, id)
  local parked = R[15] == "parked"
  if why ~= "key" then
    if not parked then
      leave_key(S, id, "waiting")
    end
    return
  end
  local priority, seq = tonumber(R[2]) or 0, tonumber(redis.call("HGET", key, "q"))
  hold_back(S, id, R.k, priority * 17592186044416 + seq)
  if parked then
    local state = priority == 0 and "ready" or "prioritized"
    redis.call("HSET", key, "s", state)
    redis.call("HDEL", key, "pt")
    note(S, state, id, "unparked")
  else
    local held = key_state(S, R.k)
    held.waiting = math.max(held.waiting - 1, 0)
  end
end
