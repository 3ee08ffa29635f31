--- @include "whole"
-- Somebody's call got through. Were all silent for more than half a lease and a lease ended then, or is about to, Redis
-- was away rather than the owners: reap waits one lease, as after a restart (RT-068). A lease that had its wait gets
-- no second one, so calls that are rare put nothing off for ever.
local function hear(K, S)
  local silent = S.seen and S.ms - S.seen or 0
  if silent * 2 > S.lease_ms then
    local soon = S.ms + math.floor(S.lease_ms / 6)
    if redis.call("ZCOUNT", K.lease, whole(S.reap_after), whole(soon)) > 0 then
      S.reap_after = S.ms + S.lease_ms
      S.set[#S.set + 1], S.set[#S.set + 2] = "reap_after", whole(S.reap_after)
    end
  end
  -- Beats come every third of a lease: with this they keep `seen` younger than half of one, and claims seldom write.
  if not S.seen or silent * 8 > S.lease_ms then
    S.seen, S.heard = S.ms, true
    S.set[#S.set + 1], S.set[#S.set + 2] = "seen", S.now
  end
end
