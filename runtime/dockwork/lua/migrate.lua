-- Raises the stored schema version when every registered worker reads the new one.
-- KEYS[1]   meta      hash
-- KEYS[2]   workers   hash
-- ARGV[1]   version   int
-- Returns   {"ok", said, version, owner...}   "ok" | "refused" with the workers that do not read it; the version that holds
local K = {meta = KEYS[1], workers = KEYS[2]}
local stored = tonumber(redis.call("HGET", K.meta, "schema") or "1")
local wanted, behind = tonumber(ARGV[1]), {}
if stored >= wanted then return {"ok", "ok", stored} end
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local beats = redis.call("HGETALL", K.workers)
for i = 1, #beats, 2 do
  local at, beat = string.match(beats[i + 1], "^(%d+) (.*)$")
  -- Silent for a minute is gone: trim forgets it.
  local reads = tonumber(string.match(beat or "", '"protocol":(%d+)')) or 1
  if at and tonumber(at) >= now - 60000 and reads < wanted then behind[#behind + 1] = beats[i] end
end
if #behind > 0 then return {"ok", "refused", stored, unpack(behind, 1, math.min(#behind, 100))} end
redis.call("HSET", K.meta, "schema", wanted)
return {"ok", "ok", wanted}
