--- @include "whole"
--- @include "record_key"
--- @include "key_state"
--- @include "hold_back"
-- Whether a job may wait among those that can be claimed. One whose concurrency key has enough of them, running or
-- claimable, waits aside instead; an urgent one (a priority below 0) only while enough of them run. Nor does it go
-- before one that waits aside for a place which this call has freed.
local function enter_key(S, id, priority, score)
  local found = redis.call("HMGET", record_key(S.K.records, id), "k", "kl")
  local key = found[1]
  if not key then
    return true
  end
  local state, limit = key_state(S, key), tonumber(found[2]) or S.per_key
  if state.running + (priority < 0 and 0 or state.waiting) < limit then
    local freed = S.freed and S.freed[key]
    if not freed or redis.call("ZCOUNT", record_key(S.K.held_jobs, key), "-inf", "(" .. whole(score)) == 0 then
      state.waiting = state.waiting + 1
      return true
    end
  end
  hold_back(S, id, key, score)
  return false
end
