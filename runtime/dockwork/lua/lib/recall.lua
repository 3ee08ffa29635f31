--- @include "whole"
--- @include "record_key"
--- @include "answer"
-- The answer that a call of this number got before, with the claims of then that are still held; else nothing.
local function recall(K, S, W)
  local stored = redis.call("HGET", record_key(K.receipts, W.owner), whole(tonumber(W.number) % 16))
  if not stored then
    return
  end
  local number, verdicts, claims = string.match(stored, "^(%d+);(%a*);(.*)$")
  if number ~= W.number then
    return
  end
  local claimed = {false, 1, "", S.revision}
  for id, epoch in string.gmatch(claims, "(%S+) (%S+)") do
    local R = redis.call("HMGET", record_key(K.records, id), "n", "p", "c", "d", "sf", "f", "v", "mr", "to", "s", "e",
      "rn")
    if R[11] == epoch and (R[10] == "active" or R[10] == "processing") then
      local repeated = R[12]
      R[10], R[11] = id, epoch
      R[12] = redis.call("GET", record_key(K.envelopes, id))
      R[13] = redis.call("HGET", record_key(K.outputs, id), "checkpoint")
      R[14] = repeated or nil
      claimed[#claimed + 1] = R
    end
  end
  return answer(S, verdicts, claimed)
end
