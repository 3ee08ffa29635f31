--- @include "record_key"
-- What may be sealed of a job: envelope, checkpoint, result, their bytes, and a digest of the three.
local function sealed_parts(K, id)
  local envelope = redis.call("GET", record_key(K.envelopes, id))
  local O = redis.call("HMGET", record_key(K.outputs, id), "checkpoint", "result")
  local whole = table.concat({envelope or "", O[1] or "", O[2] or ""}, "\n")
  return {envelope = envelope, checkpoint = O[1], result = O[2], bytes = #whole, digest = redis.sha1hex(whole)}
end
