--- @include "whole"
--- @include "record_key"
-- Where a record belongs: the key of its index and its score there. Nothing for a state that nobody knows.
local function index_of(K, S, R)
  local seq, priority = tonumber(R.q) or 0, tonumber(R.p) or 0
  if R.s == "ready" or R.s == "prioritized" then
    if priority == 0 then
      return K.ready, whole(seq)
    end
    return K.prio, whole(priority * 17592186044416 + seq)
  elseif R.s == "delayed" then
    return K.delayed, whole((tonumber(R.d or R.c) or S.ms) * 1024 + seq % 1024)
  elseif R.s == "active" or R.s == "processing" then
    -- Nobody knows how long its lease was to last: whoever holds it renews, else it is taken back.
    return K.lease, whole(S.ms + S.lease_ms)
  elseif R.s == "parked" then
    return record_key(K.parked_types, R.pt or R.n), whole(seq)
  elseif R.s == "completed" or R.s == "failed" or R.s == "dead" or R.s == "expired" or R.s == "cancelled" then
    return K[R.s], R.h or S.now
  end
end
