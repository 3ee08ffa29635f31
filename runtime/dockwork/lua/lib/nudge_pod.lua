--- @include "nudge"
--- @include "pod_of"
-- Nudges every owner of one pod.
local function nudge_pod(K, owners, pod, text)
  for i = 1, #owners do
    if pod_of(owners[i]) == pod then
      nudge(K, owners[i], text)
    end
  end
end
