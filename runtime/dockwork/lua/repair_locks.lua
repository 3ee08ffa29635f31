-- Deletes locks of unique keys that nobody holds any more: their job is gone, has ended, or holds another.
-- KEYS[1]   meta      hash
-- KEYS[2]   records   prefix
-- KEYS[3]   unique    prefix
-- ARGV[1+]  hash      str    at most 200
-- Returns   {"ok", deleted}
local K = {meta = KEYS[1], records = KEYS[2], unique = KEYS[3]}
--- @include "open"
--- @include "record_key"
--- @include "lock_holder"
local S = open(K)
if S.wrong then return S.wrong end
local deleted = 0
for i = 1, #ARGV do
  if not lock_holder(K, ARGV[i]) then
    deleted = deleted + redis.call("DEL", record_key(K.unique, ARGV[i]))
  end
end
return {"ok", deleted}
