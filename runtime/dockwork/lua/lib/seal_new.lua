--- @include "note_keys"
-- Enters the keys that seal a new job's arguments: `z` of its options has them between commas.
local function seal_new(K, job)
  local z = job.set and job.set.z
  if z then
    local ids = {}
    for id in string.gmatch(z, "[^,]+") do
      ids[#ids + 1] = id
    end
    note_keys(K, job.key, nil, {a = ids})
  end
end
