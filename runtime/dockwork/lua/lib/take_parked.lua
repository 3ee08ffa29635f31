--- @include "whole"
--- @include "record_key"
--- @include "take_ids"
--- @include "write_taken"
--- @include "unpark"
-- Leases parked jobs of types that this worker knows (`W.known`, a list joined by newlines), oldest first. Leaves
-- `T.parked` at 2 where more of them wait.
local function take_parked(K, S, W, T)
  local waiting = {}
  for _, name in ipairs(redis.call("HKEYS", K.parked)) do
    waiting[name] = true
  end
  for name in string.gmatch(W.known, "[^\n]+") do
    if waiting[name] and T.left <= 0 then
      T.more, T.parked = true, 2
    elseif waiting[name] then
      local index = record_key(K.parked_types, name)
      local ids = redis.call("ZRANGE", index, 0, T.left - 1)
      local used = take_ids(K, S, W, T, ids)
      if used > 0 then
        redis.call("ZREMRANGEBYRANK", index, 0, used - 1)
        S.wrote = true
        unpark(K, S, name, used)
        for i = 1, #T.taken do
          redis.call("HDEL", record_key(K.records, T.taken[i].id), "pt")
        end
        write_taken(K, S, W, T)
      end
      if redis.call("ZCARD", index) > 0 then
        T.more, T.parked = true, 2
      end
    end
  end
end
