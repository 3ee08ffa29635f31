--- @include "load_limits"
-- From its first job with a concurrency key on a queue pays for looking at keys.
local function use_keys(S)
  load_limits(S.K, S, (S.flags or "") .. "k")
  S.set[#S.set + 1], S.set[#S.set + 2] = "fl", S.flags
end
