--- @include "whole"
--- @include "place"
--- @include "postpone"
--- @include "use_keys"
--- @include "mark_of"
-- Writes the record of a checked job and marks it for its index. Absent fields mean their default.
local function write_job(S, job)
  local seq, set = job.seq, job.set
  if not seq then
    S.seq = S.seq + 1
    seq = S.seq
  end
  local fields = {"n", job.type, "s", job.state, "q", whole(seq), "c", S.now, "b", whole(job.bytes)}
  if job.options == "" then
    redis.call("HSET", job.key, unpack(fields))
    place(S, job.id, 0, seq)
    return
  end
  -- "m": the record has more than the plain fields; without it readers spare themselves the look-ups.
  fields[11], fields[12] = "m", (job.due ~= S.ms or job.u) and "1" or mark_of(set)
  local size = 12
  for name, value in pairs({p = set.p, mr = set.mr, mv = set.mv, to = set.to, kp = set.kp, k = set.k, kl = set.kl,
      sf = set.sf, rp = set.rp, u = job.u, d = job.due ~= S.ms and whole(job.due) or nil}) do
    fields[size + 1], fields[size + 2] = name, value
    size = size + 2
  end
  if set.x then
    local expires = whole(job.due + tonumber(set.x))
    fields[size + 1], fields[size + 2] = "x", expires
    S.expiry[#S.expiry + 1] = expires
    S.expiry[#S.expiry + 1] = job.id
  end
  redis.call("HSET", job.key, unpack(fields))
  if set.k and not S.keyed then
    use_keys(S)
  end
  if job.state == "delayed" then
    postpone(S, job.id, job.due, seq, job.reason)
  else
    place(S, job.id, job.priority, seq, job.reason)
  end
end
