--- @include "record_key"
-- Adds to `keys` all keys of one job, for `unlink_all`.
local function forget(K, keys, id)
  local size = #keys
  keys[size + 1] = record_key(K.records, id)
  keys[size + 2] = record_key(K.envelopes, id)
  keys[size + 3] = record_key(K.outputs, id)
end
