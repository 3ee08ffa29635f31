--- @include "record_key"
--- @include "tally"
--- @include "key_state"
--- @include "unhold"
-- Lets the first jobs that wait aside return to their places, as many as each key of S.freed has room for now, at
-- most 500 of one key: trim looks for what is left.
local function free_keys(S)
  local freed = S.freed
  S.freed = nil
  for key in pairs(freed) do
    local held, state, moved = record_key(S.K.held_jobs, key), nil, 0
    local head = redis.call("HEXISTS", S.K.held_keys, key) == 1 and redis.call("ZRANGE", held, 0, 0, "WITHSCORES") or {}
    while head[1] and moved < 500 do
      local R, score = redis.call("HMGET", record_key(S.K.records, head[1]), "s", "kl"), tonumber(head[2])
      state = state or key_state(S, key)
      if R[1] and state.running + state.waiting >= (tonumber(R[2]) or S.per_key) then
        break
      end
      unhold(S, head[1], key, score)
      if R[1] then
        local index = score >= 0 and score < 17592186044416 and S.ready or S.prio
        index[#index + 1], index[#index + 2] = head[2], head[1]
        state.waiting = state.waiting + 1
        S.claimable = S.claimable + 1
        tally(S.stats, "entered", 1)
        tally(S.minute, "a", 1)
      else
        tally(S.stats, "orphans", 1)
      end
      moved = moved + 1
      head = redis.call("ZRANGE", held, 0, 0, "WITHSCORES")
    end
  end
end
