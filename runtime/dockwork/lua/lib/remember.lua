--- @include "whole"
--- @include "record_key"
-- Keeps the answer of a numbered call, the last 16 of an owner, so that a lost reply can be asked for again: its
-- number, a letter per settlement, then the claims as id and epoch (RT-066). They live for 10 min from the first 16
-- calls or the owner's last beat, whichever is later: an expiry with each call was two commands more.
local function remember(K, W, verdicts, claims)
  local key = record_key(K.receipts, W.owner)
  local place = whole(tonumber(W.number) % 16)
  if redis.call("HSET", key, place, W.number .. ";" .. verdicts .. ";" .. claims) == 1 then
    redis.call("PEXPIRE", key, "600000")
  end
end
