--- @include "whole"
--- @include "free_keys"
--- @include "when_full"
-- The limits' part of `finish`: keys that became free let others in, then what changed is stored.
local function write_limits(K, S)
  if S.freed or next(S.keys) then
    when_full(K, S)
  end
  if S.freed then
    free_keys(S)
  end
  for key, state in pairs(S.keys) do
    if state.running == 0 and state.waiting == 0 then
      redis.call("HDEL", K.key_counts, key)
    else
      redis.call("HSET", K.key_counts, key, whole(state.running) .. " " .. whole(state.waiting))
    end
  end
  local after, names, set = {S.throttled, S.told, S.held_ready, S.held_prio}, {"thr", "thm", "hr", "hp"}, S.set
  for i = 1, 4 do
    if after[i] ~= S.limits[i] then
      set[#set + 1], set[#set + 2] = names[i], whole(after[i])
    end
  end
  S.limits, S.keys = after, {}
end
