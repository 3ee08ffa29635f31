--- @include "record_key"
--- @include "forget"
--- @include "unlink_all"
--- @include "unseal"
-- Deletes ended jobs whose ids were the first `#ids` of `index`, and their share of the kept bytes.
local function drop_ended(K, S, state, ids)
  if #ids == 0 then
    return
  end
  local kept = state == "completed" and "kept_completed" or "kept"
  local keys, sealed = {}, {}
  for i = 1, #ids do
    if S[kept] > 0 then
      local record = record_key(K.records, ids[i])
      local R = redis.call("HMGET", record, "kb", "z")
      S[kept] = math.max(0, S[kept] - (tonumber(R[1]) or 0))
      if R[2] then
        sealed[#sealed + 1] = {record, R[2]}
      end
    end
    if state == "completed" then
      -- Its envelope went when it completed.
      keys[#keys + 1] = record_key(K.records, ids[i])
      keys[#keys + 1] = record_key(K.outputs, ids[i])
    else
      forget(K, keys, ids[i])
    end
  end
  redis.call("ZREMRANGEBYRANK", K[state], 0, #ids - 1)
  S.wrote = true
  for i = 1, #sealed do
    unseal(K, sealed[i][1], sealed[i][2])
  end
  unlink_all(keys)
end
