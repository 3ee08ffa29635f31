-- The earlier of two times, either of which may be missing.
local function earliest(one, other)
  return one and other and math.min(one, other) or one or other
end
