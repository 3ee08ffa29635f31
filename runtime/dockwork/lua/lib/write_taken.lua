--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "note"
--- @include "bucket"
--- @include "to_dead"
--- @include "set_aside"
--- @include "leave_claim"
--- @include "release_unique"
-- Leases the jobs of T.taken and ends those of T.dropped, which the caller has taken out of their index.
local function write_taken(K, S, W, T)
  local now_epoch, expires = whole(S.us), whole(S.ms + S.lease_ms)
  local waits = 0
  for i = 1, #T.taken do
    local R, id, key = T.taken[i], T.taken[i].id, T.taken[i].key
    local epoch = now_epoch
    if R[12] and tonumber(R[12]) >= S.us then
      epoch = whole(tonumber(R[12]) + 1)
    end
    local deliveries = R[7] and whole(tonumber(R[7]) + 1) or "1"
    redis.call("HSET", key, "s", "active", "e", epoch, "w", W.owner, "v", deliveries)
    local wait = math.max(0, S.ms - tonumber(R[13] or R[4] or R[3] or S.ms))
    waits = waits + wait
    tally(S.waits, bucket(wait), 1)
    if R[10] then
      S.unexpiry[#S.unexpiry + 1] = id
    end
    -- The row of a claim: the record's first nine fields as read, then what follows.
    R[7], R[10], R[11], R[12], R[13] = deliveries, id, epoch, T.texts[i], false
    if R[16] then
      R[13] = redis.call("HGET", record_key(K.outputs, id), "checkpoint")
    end
    if R[17] and string.sub(R[17], 1, 1) == "s" then
      release_unique(K, id, R[17])
    end
    -- A tenth only where the job repeats: how often it has.
    R[14] = R[18] or nil
    R[15], R[16], R[17], R[18], R.id, R.key = nil, nil, nil, nil, nil, nil
    T.rows[#T.rows + 1] = R
    T.leases[#T.leases + 1] = expires
    T.leases[#T.leases + 1] = id
    T.receipt[#T.receipt + 1] = id
    T.receipt[#T.receipt + 1] = epoch
    note(S, "active", id)
  end
  T.left, T.count = T.left - #T.taken, T.count + #T.taken
  if waits > 0 then
    tally(S.stats, "wait_ms", waits)
  end
  for i = 1, #T.dropped do
    local id, R, why = T.dropped[i][1], T.dropped[i][2], T.dropped[i][3]
    if S.keyed and why ~= "gone" then
      leave_claim(S, id, R, why)
    end
    if why == "gone" then
      tally(S.stats, "orphans", 1)
    elseif why == "suspect" then
      local key = record_key(K.records, id)
      set_aside(S, key, id, tonumber(redis.call("HGET", key, "q")), 1000)
    elseif why ~= "key" then
      if R[10] then
        S.unexpiry[#S.unexpiry + 1] = id
      end
      to_dead(K, S, id, why, why == "expired" and "out of time" or "", tonumber(R[14]) or 0)
    end
  end
  T.taken, T.dropped = {}, {}
end
