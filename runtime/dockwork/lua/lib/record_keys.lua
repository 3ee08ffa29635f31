-- The keys of many jobs: `record_key` for a batch, without a call for each.
local function record_keys(prefix, ids)
  local keys = {}
  for i = 1, #ids do
    keys[i] = prefix .. ids[i]
  end
  return keys
end
