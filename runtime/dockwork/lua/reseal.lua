-- Writes sealed values of waiting and kept jobs anew, each only if it is as it was read.
-- KEYS[1]   meta       hash
-- KEYS[2]   records    prefix
-- KEYS[3]   envelopes  prefix
-- KEYS[4]   outputs    prefix
-- KEYS[5]   key_ids    hash
-- ARGV[1]   jobs       int   1 to 100
-- ARGV[2+]  id, digest, keys, envelope, checkpoint, result    six per job: the digest of `sealed`, what seals what as in
--           a settlement's Z, and the new values, "" for one that stays
-- Returns   {"ok", said...}   "ok" | "conflicted" | "running" | "missing", in order
local K = {meta = KEYS[1], records = KEYS[2], envelopes = KEYS[3], outputs = KEYS[4], key_ids = KEYS[5]}
--- @include "open"
--- @include "whole"
--- @include "record_key"
--- @include "sealed_parts"
--- @include "read_parts"
--- @include "note_keys"
--- @include "write_sealed"
local S = open(K)
if S.wrong then return S.wrong end
local reply = {"ok"}
for i = 1, tonumber(ARGV[1]) do
  local at = 6 * i - 4
  local id = ARGV[at]
  local key = record_key(K.records, id)
  local R = redis.call("HMGET", key, "s", "z", "b")
  if not R[1] then
    reply[i + 1] = "missing"
  elseif R[1] == "active" or R[1] == "processing" then
    reply[i + 1] = "running"
  elseif sealed_parts(K, id).digest ~= ARGV[at + 1] then
    reply[i + 1] = "conflicted"
  else
    write_sealed(K, S, key, {id = id, state = R[1], bytes = tonumber(R[3]) or 0, envelope = ARGV[at + 3],
      checkpoint = ARGV[at + 4], result = ARGV[at + 5]})
    note_keys(K, key, R[2], read_parts(ARGV[at + 2]))
    reply[i + 1] = "ok"
  end
end
redis.call("HSET", K.meta, "bytes", whole(S.bytes), "kept", whole(S.kept), "keptc", whole(S.kept_completed))
return reply
