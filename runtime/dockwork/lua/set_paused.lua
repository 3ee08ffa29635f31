-- Pauses or resumes a queue by hand, if it is as expected; running jobs go on.
-- KEYS[1]   meta      hash
-- KEYS[2]   ready     zset
-- KEYS[3]   prio      zset
-- KEYS[4]   wake      zset
-- KEYS[5]   cold      string
-- KEYS[6]   events    stream
-- KEYS[7]    lease   zset
-- ARGV[1]   expected  int   1 = paused, 0 = not
-- ARGV[2]   wanted    int
-- Returns   {"ok", 1 | 0}    0 = it was not as expected
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], wake = KEYS[4], cold = KEYS[5], events = KEYS[6],
  lease = KEYS[7]}
--- @include "open"
--- @include "whole"
--- @include "when_full"
--- @include "post_markers"
--- @include "add_events"
local S = open(K)
if S.wrong then return S.wrong end
if (S.paused and "1" or "0") ~= ARGV[1] then return {"ok", 0} end
if ARGV[1] == ARGV[2] then return {"ok", 1} end
local waiting = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio)
when_full(K, S)
if ARGV[2] == "1" then
  redis.call("HSET", K.meta, "paused", "1", "schema", "1")
else
  redis.call("HDEL", K.meta, "paused")
  S.paused = false
  S.order[1] = {"resumed", "", {}, {"count", whole(waiting), "seq", whole(S.seq)}}
  add_events(K, S)
  post_markers(K, S, waiting)
end
return {"ok", 1}
