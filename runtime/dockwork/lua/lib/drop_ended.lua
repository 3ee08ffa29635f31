--- @include "record_key"
--- @include "forget"
--- @include "unlink_all"
-- Deletes ended jobs whose ids were the first `#ids` of `index`, and their share of the kept bytes.
local function drop_ended(K, S, state, ids)
  if #ids == 0 then
    return
  end
  local kept = state == "completed" and "kept_completed" or "kept"
  local keys = {}
  for i = 1, #ids do
    if S[kept] > 0 then
      S[kept] = math.max(0, S[kept] - (tonumber(redis.call("HGET", record_key(K.records, ids[i]), "kb")) or 0))
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
  unlink_all(keys)
end
