-- One job as it stands.
-- KEYS[1]   meta       hash
-- KEYS[2]   records    prefix
-- KEYS[3]   envelopes  prefix
-- KEYS[4]   outputs    prefix
-- ARGV[1]   job_id     str
-- ARGV[2]   digest     int   1 = with the digest that redrive compares
-- Returns   {"ok", paused, job...}    no job or one: {id, record, envelope|nil, outputs, digest}
local K = {meta = KEYS[1], records = KEYS[2], envelopes = KEYS[3], outputs = KEYS[4]}
--- @include "open"
--- @include "view"
local S = open(K)
if S.wrong then return S.wrong end
return {"ok", S.paused and 1 or 0, view(K, ARGV[1], ARGV[2] == "1") or nil}
