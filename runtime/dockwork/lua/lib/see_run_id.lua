--- @include "whole"
-- After a restart or failover reap waits one lease, so that living owners renew first (RT-068).
local function see_run_id(S, run_id)
  if run_id ~= "" and S.run_id ~= run_id then
    S.reap_after = S.ms + S.lease_ms
    S.run_id = run_id
    S.set[#S.set + 1], S.set[#S.set + 2] = "run_id", run_id
    S.set[#S.set + 1], S.set[#S.set + 2] = "reap_after", whole(S.reap_after)
  end
end
