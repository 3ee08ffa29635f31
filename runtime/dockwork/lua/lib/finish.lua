--- @include "whole"
--- @include "add_all"
--- @include "add_delayed"
--- @include "remove_all"
--- @include "when_full"
--- @include "post_markers"
--- @include "add_events"
--- @include "write_counters"
--- @include "write_limits"
-- Writes what a call collected: indexes, events, counters, the queue's own fields, markers. The script has
-- written its records before; nothing is decided here.
local function finish(K, S)
  if S.limits then
    write_limits(K, S)
  end
  local after = {S.seq, S.bytes, S.kept, S.kept_completed, S.parked}
  local names, set = {"seq", "bytes", "kept", "keptc", "parked"}, S.set
  for i = 1, 5 do
    if after[i] ~= S.before[i] then
      set[#set + 1], set[#set + 2] = names[i], whole(after[i])
    end
  end
  if #set > 0 and (#set > 2 or set[1] ~= "schema") then
    when_full(K, S)
    redis.call("HSET", K.meta, unpack(set))
  end
  if #S.ready > 0 then add_all(K.ready, S.ready) end
  if #S.prio > 0 then add_all(K.prio, S.prio) end
  if #S.unexpiry > 0 then remove_all(K.expiry, S.unexpiry) end
  if #S.expiry > 0 then add_all(K.expiry, S.expiry) end
  for state, index in pairs(S.ended) do
    add_all(K[state], index)
  end
  add_delayed(K, S)
  add_events(K, S)
  write_counters(K, S)
  post_markers(K, S, S.claimable + (S.woken or 0))
end
