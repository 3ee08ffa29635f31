-- Deletes ended jobs of one state that ended by a time, if they are as they were counted; without a digest it counts.
-- KEYS[1]   meta       hash
-- KEYS[2]   completed  zset
-- KEYS[3]   failed     zset
-- KEYS[4]   dead       zset
-- KEYS[5]   expired    zset
-- KEYS[6]   cancelled  zset
-- KEYS[7]   wake       zset
-- KEYS[8]   events     stream
-- KEYS[9]   stats      hash
-- KEYS[10]  records    prefix
-- KEYS[11]  envelopes  prefix
-- KEYS[12]  outputs    prefix
-- KEYS[13]  key_ids    hash
-- ARGV[1]   state      str
-- ARGV[2]   before_ms  int   -1 = now
-- ARGV[3]   digest     str   "" = count only
-- ARGV[4]   most       int   at most 500
-- Returns   {"ok", said, number, before_ms, left, digest}   "ok" | "conflicted"; number: deleted now, left: and its digest
local K = {meta = KEYS[1], completed = KEYS[2], failed = KEYS[3], dead = KEYS[4], expired = KEYS[5],
  cancelled = KEYS[6], wake = KEYS[7], events = KEYS[8], stats = KEYS[9], records = KEYS[10],
  envelopes = KEYS[11], outputs = KEYS[12], key_ids = KEYS[13]}
--- @include "open"
--- @include "whole"
--- @include "note"
--- @include "when_full"
--- @include "add_events"
--- @include "drop_ended"
--- @include "purge_look"
local S = open(K)
if S.wrong then return S.wrong end
local state, before, digest = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if before < 0 then before = S.ms end
local count, found = purge_look(K, state, before)
if digest == "" then return {"ok", "ok", 0, whole(before), count, found} end
if digest ~= found then return {"ok", "conflicted", 0, whole(before), count, found} end
local number = math.min(count, tonumber(ARGV[4]))
if number > 0 then
  when_full(K, S)
  local ids = redis.call("ZRANGE", K[state], 0, number - 1)
  for i = 1, #ids do note(S, "obliterated", ids[i], "purged") end
  drop_ended(K, S, state, ids)
  redis.call("HSET", K.meta, "kept", whole(S.kept), "keptc", whole(S.kept_completed))
  redis.call("HINCRBY", K.stats, "purged", number)
  add_events(K, S)
  count, found = purge_look(K, state, before)
end
return {"ok", "ok", number, whole(before), count, found}
