--- @include "record_key"
-- Reads ARGV[first] settlements and the records they mean. Answers those whose epoch still holds, and a letter
-- per settlement: "o", or "l" for lost. An outcome's letters:
-- c completed  r retry  z snooze  f failed  d dead  x cancelled  p parked; and for the values that follow it:
-- R result  D size of a dropped result  L delay_ms  W reason  F failure  E the same in less than 4 KiB  P parked type  G progress
-- N when a job that repeats is due next, 0 = L from now  T another envelope  K another checkpoint
-- Z what seals which part of the job
local function read_settlements(K, first)
  local held, verdicts, at = {}, {}, first + 1
  for i = 1, tonumber(ARGV[first]) do
    local J = {id = ARGV[at], epoch = ARGV[at + 1], started = ARGV[at + 2]}
    local outcome = ARGV[at + 3]
    at = at + 4
    if #outcome == 1 then
      J.outcome = outcome
    else
      J.outcome = string.sub(outcome, 1, 1)
      for n = 2, #outcome do
        J[string.sub(outcome, n, n)] = ARGV[at]
        at = at + 1
      end
    end
    local key = record_key(K.records, J.id)
    local R = redis.call("HMGET", key, "e", "s", "n", "b", "w", "m")
    if R[6] or J.outcome ~= "c" then
      R = redis.call("HMGET", key, "e", "s", "n", "b", "q", "f", "v", "x", "t", "kp", "w", "o",
        "u", "rp", "rn", "z")
    else
      R = {R[1], R[2], R[3], R[4], false, false, false, false, false, false, R[5], false}
    end
    if R[1] == J.epoch and (R[2] == "active" or R[2] == "processing") then
      -- The same delivery twice in one call: the second is lost, as it would be in a later call.
      if held[J.id] then
        verdicts[i] = "l"
      else
        J.key, J.record = key, R
        held[J.id] = true
        held[#held + 1] = J
        verdicts[i] = "o"
      end
    else
      verdicts[i] = "l"
    end
  end
  return held, table.concat(verdicts)
end
