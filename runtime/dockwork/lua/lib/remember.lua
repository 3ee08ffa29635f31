--- @include "whole"
--- @include "record_key"
-- Keeps the answer of a numbered call for 10 min, the last 16 of an owner, so that a lost reply can be asked
-- for again: a letter per settlement, then the claims as id and epoch (RT-066).
local function remember(K, W, verdicts, claims)
  local key = record_key(K.receipts, W.owner)
  redis.call("HSET", key, W.number, verdicts .. ";" .. claims)
  redis.call("HDEL", key, whole(tonumber(W.number) - 16))
  redis.call("PEXPIRE", key, "600000")
end
