-- Asks pods to claim no more, for 60 s; claims refuse them from now on.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   workers   hash
-- KEYS[4]   quiesce   hash    pod uid -> "<expiry ms> <token>"
-- KEYS[5]   leased    hash
-- KEYS[6]   nudges    prefix
-- ARGV[1+]  pod, token    a pair per pod
-- Returns   {"ok", leased...}    in order
local K = {meta = KEYS[1], wake = KEYS[2], workers = KEYS[3], quiesce = KEYS[4], leased = KEYS[5],
  nudges = KEYS[6]}
--- @include "open"
--- @include "whole"
--- @include "when_full"
--- @include "quiesced"
--- @include "nudge_pod"
local S = open(K)
if S.wrong then return S.wrong end
local reply, fresh = {"ok"}, {}
for i = 1, #ARGV, 2 do
  fresh[i] = quiesced(K, S, ARGV[i]) ~= ARGV[i + 1]
  reply[#reply + 1] = tonumber(redis.call("HGET", K.leased, ARGV[i])) or 0
end
local owners = redis.call("HKEYS", K.workers)
when_full(K, S)
for i = 1, #ARGV, 2 do
  redis.call("HSET", K.quiesce, ARGV[i], whole(S.ms + 60000) .. " " .. ARGV[i + 1])
  if fresh[i] then nudge_pod(K, owners, ARGV[i], "quiesce " .. ARGV[i + 1]) end
end
return reply
