-- Schedules whose arguments another key should seal.
-- KEYS[1]   meta     hash
-- KEYS[2]   cron     hash
-- ARGV[1]   key      str   id of the key that should
-- ARGV[2]   types    str   job types whose arguments should be sealed, joined by newlines
-- Returns   {"ok", schedule...}   a schedule being {uid, type, digest, envelope}; at most 500
local K = {meta = KEYS[1], cron = KEYS[2]}
--- @include "open"
--- @include "sealed_schedule"
local S = open(K)
if S.wrong then return S.wrong end
local sealing, reply = {}, {"ok"}
for name in string.gmatch(ARGV[2], "[^\n]+") do
  sealing[name] = true
end
local fields = redis.call("HGETALL", K.cron)
for i = 1, #fields, 2 do
  if string.sub(fields[i], -6) == ":entry" and #reply <= 500 then
    local uid = string.sub(fields[i], 1, -7)
    local kind, _, ids = sealed_schedule(fields[i + 1])
    if ids ~= ARGV[1] and (ids ~= "" or sealing[kind]) then
      local envelope = redis.call("HGET", K.cron, uid .. ":env") or ""
      reply[#reply + 1] = {uid, kind, redis.sha1hex(envelope), envelope}
    end
  end
end
return reply
