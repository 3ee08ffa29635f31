--- @include "whole"
--- @include "record_key"
--- @include "read_parts"
--- @include "note_keys"
-- What a settle does to the sealed parts of a job: T is another envelope, K another checkpoint, Z says what seals what.
-- how: again (it stays a job to be run), repeats (after a run of its own), completed, gone (nothing of it stays).
local function reseal_run(K, S, J, how)
  local R, after = J.record, read_parts(J.Z or "")
  if how == "gone" then
    after = {a = {}, c = {}, r = {}}
  elseif how == "completed" or how == "repeats" then
    after.c = {}
    if not J.R then
      after.r = nil
    end
    if J.R or (how == "repeats" and J.outcome == "c") then
      after.r = after.r or {}
    end
    if how == "completed" then
      after.a = {}
    end
  end
  if J.T and (how == "again" or how == "repeats") then
    redis.call("SET", record_key(K.envelopes, J.id), J.T)
    S.bytes = S.bytes + #J.T - (tonumber(R[4]) or 0)
    R[4] = whole(#J.T)
    redis.call("HSET", J.key, "b", R[4], "m", "1")
    redis.call("HINCRBY", J.key, "rv", "1")
  end
  if J.K and how == "again" then
    redis.call("HSET", record_key(K.outputs, J.id), "checkpoint", J.K)
  end
  note_keys(K, J.key, R[16], after)
end
