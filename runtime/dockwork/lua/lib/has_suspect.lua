--- @include "record_key"
-- Whether this worker runs a suspect already; after ten minutes that one counts no more.
local function has_suspect(K, S, W)
  local stored = redis.call("HGET", record_key(K.receipts, W.owner), "suspect")
  if not stored then
    return false
  end
  local till, id = string.match(stored, "^(%d+) (.*)$")
  if tonumber(till) <= S.ms then
    return false
  end
  local R = redis.call("HMGET", record_key(K.records, id), "s", "w")
  return (R[1] == "active" or R[1] == "processing") and R[2] == W.owner
end
