-- Ends an obliteration: the last word goes into the events, which live a minute more, and `meta` goes last.
-- KEYS[1]   meta      hash
-- KEYS[2]   events    stream
-- ARGV[1]   token     str
-- Returns   {"ok", said}   "ok" | "missing" | "conflicted"
local K = {meta = KEYS[1], events = KEYS[2]}
--- @include "open"
--- @include "add_events"
local S = open(K)
if S.wrong then return S.wrong end
local meta = redis.call("HMGET", K.meta, "oblit", "obliterated", "schema")
if not meta[3] then return {"ok", "missing"} end
if meta[1] ~= ARGV[1] then return {"ok", "conflicted"} end
redis.call("UNLINK", K.events)
S.order[1] = {"obliterated", "", {}, {"count", meta[2] or "0"}}
add_events(K, S)
redis.call("PEXPIRE", K.events, "60000")
redis.call("UNLINK", K.meta)
return {"ok", "ok"}
