-- Changes a waiting job that is still at the revision that was looked at: its envelope, its due time, its priority.
-- KEYS[1]   meta          hash
-- KEYS[2]   ready         zset
-- KEYS[3]   prio          zset
-- KEYS[4]   delayed       zset
-- KEYS[5]   lease         zset
-- KEYS[6]   expiry        zset
-- KEYS[7]   wake          zset
-- KEYS[8]   cold          string
-- KEYS[9]   events        stream
-- KEYS[10]  stats         hash
-- KEYS[11]  parked        hash
-- KEYS[12]  key_counts    hash
-- KEYS[13]  held_keys     hash
-- KEYS[14]  held_jobs     prefix
-- KEYS[15]  minutes       prefix
-- KEYS[16]  records       prefix
-- KEYS[17]  envelopes     prefix
-- KEYS[18]  parked_types  prefix
-- KEYS[19]  key_ids       hash
-- ARGV[1]   job_id        str
-- ARGV[2]   revision      int
-- ARGV[3]   change        str    `name=value;` each: p priority, at due ms, since ms from now, z sealing keys
-- ARGV[4]   envelope      str    "" = as it is
-- Returns   {"ok", said}   "ok" | "conflicted" | "running" | "missing" | "!payload:<size>:<limit>" | "!bytes:..."
local K = {meta = KEYS[1], ready = KEYS[2], prio = KEYS[3], delayed = KEYS[4], lease = KEYS[5], expiry = KEYS[6],
  wake = KEYS[7], cold = KEYS[8], events = KEYS[9], stats = KEYS[10], parked = KEYS[11], key_counts = KEYS[12],
  held_keys = KEYS[13], held_jobs = KEYS[14], minutes = KEYS[15], records = KEYS[16], envelopes = KEYS[17],
  parked_types = KEYS[18], key_ids = KEYS[19]}
--- @include "open"
--- @include "record_key"
--- @include "read_options"
--- @include "edit_job"
--- @include "finish"
local S = open(K)
if S.wrong then return S.wrong end
local id, envelope = ARGV[1], ARGV[4]
local R = redis.call("HMGET", record_key(K.records, id), "s", "pt", "b", "p", "q", "d", "c", "x", "rv")
local state, bytes = R[1], nil
if not state then return {"ok", "missing"} end
if state == "active" or state == "processing" then return {"ok", "running"} end
local waits = state == "ready" or state == "prioritized" or state == "delayed" or state == "parked"
if not waits or (tonumber(R[9]) or 0) ~= tonumber(ARGV[2]) then return {"ok", "conflicted"} end
if envelope ~= "" then
  bytes = #envelope
  local limits = redis.call("HMGET", K.meta, "max_payload", "max_bytes")
  local most, all = tonumber(limits[1]) or 262144, tonumber(limits[2]) or 2147483648
  local after = S.bytes + bytes - (tonumber(R[3]) or 0)
  if bytes > most then return {"ok", string.format("!payload:%.0f:%.0f", bytes, most)} end
  if after > all and after > S.bytes then return {"ok", string.format("!bytes:%.0f:%.0f", after, all)} end
  -- First, for maxmemory refuses it: then nothing has changed.
  redis.call("SET", record_key(K.envelopes, id), envelope)
end
edit_job(K, S, id, R, read_options(ARGV[3]), bytes, tonumber(ARGV[2]))
finish(K, S)
return {"ok", "ok"}
