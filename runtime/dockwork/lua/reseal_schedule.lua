-- Writes a schedule's arguments anew, if they are as they were read. Its times and its policies stay.
-- KEYS[1]   meta      hash
-- KEYS[2]   cron      hash
-- ARGV[1]   uid       str
-- ARGV[2]   digest    str     as `sealed_schedules` gave it
-- ARGV[3]   key       str     id of the key that seals them now
-- ARGV[4]   envelope  bytes
-- Returns   {"ok", "ok" | "conflicted" | "missing"}
local K = {meta = KEYS[1], cron = KEYS[2]}
--- @include "open"
--- @include "sealed_schedule"
local S = open(K)
if S.wrong then return S.wrong end
local found = redis.call("HMGET", K.cron, ARGV[1] .. ":entry", ARGV[1] .. ":env")
if not found[1] or not found[2] then return {"ok", "missing"} end
if redis.sha1hex(found[2]) ~= ARGV[2] then return {"ok", "conflicted"} end
-- The entry is our own JSON and stays as text: only what its options say of keys changes.
local _, options = sealed_schedule(found[1])
local kept = string.gsub(";" .. options, ";z=[^;]*", "")
local now = string.sub(kept, 2) .. "z=" .. ARGV[3] .. ";"
local from, to = string.find(found[1], '"options":"' .. options .. '"', 1, true)
if not from then return {"ok", "conflicted"} end
local entry = string.sub(found[1], 1, from - 1) .. '"options":"' .. now .. '"' .. string.sub(found[1], to + 1)
redis.call("HSET", K.cron, ARGV[1] .. ":entry", entry, ARGV[1] .. ":env", ARGV[4])
return {"ok", "ok"}
