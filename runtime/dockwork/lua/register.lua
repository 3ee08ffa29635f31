-- Publishes the job types of one pod template, with their schemas.
-- KEYS[1]   meta      hash
-- KEYS[2]   wake      zset
-- KEYS[3]   cold      string
-- KEYS[4]   types     hash    type -> "<ms> <hash> <JSON Schema>"; "@<template hash>" -> "<ms> <type>\n..."
-- KEYS[5]    lease  zset
-- ARGV[1]   template  str     hash of the pod template, or ""
-- ARGV[2+]  type, hash, schema    three per type
-- Returns   {"ok"}
local K = {meta = KEYS[1], wake = KEYS[2], cold = KEYS[3], types = KEYS[4], lease = KEYS[5]}
--- @include "open"
--- @include "when_full"
--- @include "post_markers"
local S = open(K)
if S.wrong then return S.wrong end
local names = {}
when_full(K, S)
for i = 2, #ARGV, 3 do
  names[#names + 1] = ARGV[i]
  redis.call("HSET", K.types, ARGV[i], S.now .. " " .. ARGV[i + 1] .. " " .. ARGV[i + 2])
end
if ARGV[1] ~= "" then
  redis.call("HSET", K.types, "@" .. ARGV[1], S.now .. " " .. table.concat(names, "\n"))
end
-- Somebody new may know what is parked.
post_markers(K, S, S.parked)
return {"ok"}
