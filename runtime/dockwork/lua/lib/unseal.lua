--- @include "note_keys"
-- Takes a job that goes off the counts of the keys that seal it.
local function unseal(K, record, z)
  if z then
    note_keys(K, record, z, {a = {}, c = {}, r = {}})
  end
end
