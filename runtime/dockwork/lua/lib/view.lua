--- @include "record_key"
--- @include "digest_of"
-- A job for people: {id, record, envelope, outputs, digest if wanted}, or nothing; then its size in bytes.
local function view(K, id, wants_digest)
  local record = redis.call("HGETALL", record_key(K.records, id))
  if #record == 0 then
    return
  end
  local envelope = redis.call("GET", record_key(K.envelopes, id))
  local outputs, size = redis.call("HGETALL", record_key(K.outputs, id)), envelope and #envelope or 0
  for i = 1, #outputs do
    size = size + #outputs[i]
  end
  return {id, record, envelope, outputs, wants_digest and digest_of(record, envelope) or nil}, size
end
