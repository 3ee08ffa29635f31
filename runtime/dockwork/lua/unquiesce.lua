-- Lets pods claim again.
-- KEYS[1]   meta      hash
-- KEYS[2]   ready     zset
-- KEYS[3]   prio      zset
-- KEYS[4]   wake      zset
-- KEYS[5]   cold      string
-- KEYS[6]   workers   hash
-- KEYS[7]   quiesce   hash
-- KEYS[8]   nudges    prefix
-- KEYS[9]    lease    zset
-- ARGV[1+]  pod       str
-- Returns   {"ok"}
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], wake = KEYS[4], cold = KEYS[5], workers = KEYS[6],
  quiesce = KEYS[7], nudges = KEYS[8], lease = KEYS[9]}
--- @include "open"
--- @include "when_full"
--- @include "nudge_pod"
--- @include "post_markers"
local S = open(K)
if S.wrong then return S.wrong end
local owners = redis.call("HKEYS", K.workers)
local waiting = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio)
when_full(K, S)
for i = 1, #ARGV do
  if redis.call("HDEL", K.quiesce, ARGV[i]) == 1 then nudge_pod(K, owners, ARGV[i], "unquiesce") end
end
post_markers(K, S, waiting)
return {"ok"}
