--- @include "drop_ended"
-- Deletes the oldest ended jobs until all that are kept fit into `limit` bytes (-1: no limit), at most `most`.
local function trim_bytes(K, S, limit, most)
  local states, dropped = {"completed", "failed", "dead", "expired", "cancelled"}, 0
  while limit >= 0 and S.kept + S.kept_completed > limit and dropped < most do
    local oldest, oldest_state, oldest_id
    for _, state in ipairs(states) do
      local first = redis.call("ZRANGE", K[state], 0, 0, "WITHSCORES")
      local at = tonumber(first[2])
      if at and at >= 4503599627370496 then
        at = at - 4503599627370496
      end
      if at and (not oldest or at < oldest) then
        oldest, oldest_state, oldest_id = at, state, first[1]
      end
    end
    if not oldest then
      -- Nothing is left that could have them: the count was off.
      S.kept, S.kept_completed = 0, 0
      return dropped
    end
    drop_ended(K, S, oldest_state, {oldest_id})
    dropped = dropped + 1
  end
  return dropped
end
