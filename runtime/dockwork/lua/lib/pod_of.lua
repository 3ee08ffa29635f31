-- The pod (or host) of an owner `<pod>/<boot>`.
local function pod_of(owner)
  return string.match(owner, "^(.*)/[^/]*$") or owner
end
