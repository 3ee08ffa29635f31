--- @include "record_key"
--- @include "ids_across"
--- @include "ids_waiting"
-- The ids of one state from `offset` on, `limit` at most.
local function ids_in(K, S, state, offset, limit)
  local last = offset + limit - 1
  if state == "active" or state == "processing" then
    -- One index has both; the record says which. Looks at 1000 leases at most.
    local ids, found = redis.call("ZRANGE", K.lease, 0, 999), {}
    for i = 1, #ids do
      if redis.call("HGET", record_key(K.records, ids[i]), "s") == state then
        found[#found + 1] = ids[i]
      end
    end
    local page = {}
    for i = offset + 1, math.min(#found, last + 1) do
      page[#page + 1] = found[i]
    end
    return page
  elseif state == "parked" then
    local keys = {}
    for i, name in ipairs(redis.call("HKEYS", K.parked)) do
      keys[i] = record_key(K.parked_types, name)
    end
    return ids_across(keys, offset, limit)
  elseif state == "paused" then
    return S.paused and ids_waiting(K, S, {K.prio, K.ready}, {{"-inf", "+inf"}}, offset, limit) or {}
  elseif state == "ready" then
    return ids_waiting(K, S, {K.ready}, {{"0", "(17592186044416"}}, offset, limit)
  elseif state == "prioritized" then
    return ids_waiting(K, S, {K.prio}, {{"-inf", "(0"}, {"17592186044416", "+inf"}}, offset, limit)
  elseif state == "delayed" then
    return redis.call("ZRANGE", K.delayed, offset, last)
  end
  return redis.call("ZREVRANGE", K[state], offset, last)
end
