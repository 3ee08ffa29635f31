--- @include "record_key"
--- @include "tally"
--- @include "tally_type"
--- @include "note"
--- @include "note_error"
--- @include "bucket"
--- @include "reseal_run"
--- @include "settle_completed"
--- @include "settle_again"
--- @include "settle_repeat"
--- @include "settle_ended"
-- Ends one run by its outcome: the figures that all outcomes share, then each its own way.
local function settle_run(K, S, J, C)
  local R = J.record
  local kind = R[3]
  if R[9] then
    J.started = R[9]
  end
  local started = tonumber(J.started)
  if not started or started <= 0 or started > S.ms then
    started, J.started = S.ms, S.now
  end
  local run = S.ms - started
  tally(S.runs, bucket(run), 1)
  tally(S.stats, "finished", 1)
  tally(S.minute, "f", 1)
  if run > 0 then
    tally(S.stats, "run_ms", run)
    tally(S.minute, "r", run)
    tally_type(S, kind, "t", run)
  end
  if J.F then
    -- A ring of the last five: e1, e2 ... e0.
    local attempt = (tonumber(R[6]) or 0) + 1
    redis.call("HSET", record_key(K.outputs, J.id), "e" .. attempt % 5, J.F)
    J.o = true
    note_error(S, J.id, kind, attempt, J.outcome, J.E or J.F)
  end
  if J.G then
    redis.call("HSET", record_key(K.outputs, J.id), "progress", J.G)
    note(S, "progress", J.id)
    J.o = true
  end
  local repeats = J.N and R[14] and (R[14] == "0" or (tonumber(R[15]) or 0) + 1 < tonumber(R[14]))
  if (J.Z or R[16]) and (repeats or J.outcome ~= "c") then
    reseal_run(K, S, J, repeats and "repeats" or "again")
  end
  if repeats then
    settle_repeat(K, S, J)
  elseif J.outcome == "c" then
    settle_completed(K, S, J, C)
  elseif J.outcome == "r" or J.outcome == "z" then
    settle_again(K, S, J)
  else
    settle_ended(K, S, J, C)
  end
end
