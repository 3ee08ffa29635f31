-- Keeps what the next run of a job may go on from; implies start.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   events    stream
-- KEYS[4]   records   prefix
-- KEYS[5]   outputs   prefix
-- KEYS[6]   key_ids  hash
-- ARGV[1]   job_id    str
-- ARGV[2]   epoch     str
-- ARGV[3]   value     str   JSON, at most 64 KiB
-- ARGV[4]   key       str   id of the key that seals it, or ""
-- Returns   {"ok", verdict}    "ok" | "cancel" | "lost"
local K = {meta = KEYS[1], wake = KEYS[2], events = KEYS[3], records = KEYS[4], outputs = KEYS[5],
  key_ids = KEYS[6]}
--- @include "open"
--- @include "record_key"
--- @include "note"
--- @include "hold"
--- @include "add_events"
--- @include "note_keys"
local S = open(K)
if S.wrong then return S.wrong end
local verdict = hold(K, S, ARGV[1], ARGV[2])
if verdict ~= "lost" then
  redis.call("HSET", record_key(K.outputs, ARGV[1]), "checkpoint", ARGV[3])
  local record = record_key(K.records, ARGV[1])
  local z = redis.call("HGET", record, "z")
  if z or ARGV[4] ~= "" then
    note_keys(K, record, z, {c = ARGV[4] ~= "" and {ARGV[4]} or {}})
  end
  add_events(K, S)
end
return {"ok", verdict}
