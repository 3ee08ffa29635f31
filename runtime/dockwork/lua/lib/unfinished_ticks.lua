--- @include "record_key"
-- The jobs of a schedule that have not ended, oldest first, and how many of them wait. One whose record is gone
-- does not count (OP-259).
local function unfinished_ticks(K, state)
  local ids, waiting = {}, 0
  for id in string.gmatch(state.active or "", "%S+") do
    local at = redis.call("HGET", record_key(K.records, id), "s")
    if at == "ready" or at == "prioritized" or at == "delayed" or at == "parked" then
      waiting = waiting + 1
      ids[#ids + 1] = id
    elseif at == "active" or at == "processing" then
      ids[#ids + 1] = id
    end
  end
  return ids, waiting
end
