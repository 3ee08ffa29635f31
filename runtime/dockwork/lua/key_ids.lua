-- Jobs per id of the key that seals something of them.
-- KEYS[1]   meta     hash
-- KEYS[2]   key_ids  hash
-- ARGV      none
-- Returns   {"ok", {id, jobs...}}
local K = {meta = KEYS[1], key_ids = KEYS[2]}
--- @include "open"
local S = open(K)
if S.wrong then return S.wrong end
return {"ok", redis.call("HGETALL", K.key_ids)}
