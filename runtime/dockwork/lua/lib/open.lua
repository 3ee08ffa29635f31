--- @include "whole"
--- @include "load_limits"
-- What the queue says of itself, Redis TIME, and empty lists for what this call will do; `finish` writes them.
-- `wrong` is the reply to give when the stored data has another schema version (RT-042).
local function open(K)
  local time = redis.call("TIME")
  local meta = redis.call("HMGET", K.meta, "schema", "seq", "bytes", "kept", "keptc", "parked", "paused",
    "held", "closed", "run_id", "reap_after", "rev", "lease", "max_deliveries", "seen", "uniq", "ev", "fl",
    "keep_completed_age", "keep_completed_count")
  local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local ms = math.floor(us / 1000)
  local S = {
    us = us, ms = ms, now = whole(ms),
    seq = tonumber(meta[2]) or 0, bytes = tonumber(meta[3]) or 0,
    kept = tonumber(meta[4]) or 0, kept_completed = tonumber(meta[5]) or 0, parked = tonumber(meta[6]) or 0,
    paused = meta[7], held = meta[8], closed = meta[9],
    run_id = meta[10], reap_after = tonumber(meta[11]) or 0, revision = tonumber(meta[12]) or 0,
    lease_ms = tonumber(meta[13]) or 15000, max_deliveries = tonumber(meta[14]) or 5,
    seen = tonumber(meta[15]), unique = meta[16], events = meta[17],
    keep_age = tonumber(meta[19]), keep_count = tonumber(meta[20]),
    set = {}, ready = {}, prio = {}, delayed = {}, ended = {}, expiry = {}, unexpiry = {},
    stats = {}, types = {}, waits = {}, runs = {}, minute = {}, leased = {}, groups = {}, order = {}, claimable = 0,
    aside = 0, K = K,
  }
  S.before = {S.seq, S.bytes, S.kept, S.kept_completed, S.parked}
  if meta[1] and meta[1] ~= "1" then
    S.wrong = {"schema", meta[1]}
  elseif not meta[1] then
    S.set = {"schema", "1"}
  end
  if meta[18] then
    load_limits(K, S, meta[18])
  end
  return S
end
