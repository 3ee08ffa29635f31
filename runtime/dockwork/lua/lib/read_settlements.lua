--- @include "record_key"
-- Reads ARGV[first] settlements and the records they mean. Answers those whose epoch still holds, and a letter
-- per settlement: "o", or "l" for lost. An outcome's letters:
-- c completed  r retry  z snooze  f failed  d dead  x cancelled  p parked; and for the values that follow it:
-- R result  D size of a dropped result  L delay_ms  W reason  F failure  E the same in less than 4 KiB  P parked type  G progress
-- N when a job that repeats is due next, 0 = L from now  T another envelope  K another checkpoint
-- Z what seals which part of the job
local function read_settlements(K, first)
  local call, argv, records, seen = redis.call, ARGV, K.records, {}
  local held, plain, verdicts, at = {}, {ids = {}, keys = {}, started = {}, kinds = {}, results = {}, bytes = 0}, {}, first + 1
  local count, bytes, size = 0, nil, nil
  for i = 1, tonumber(argv[first]) do
    local id, epoch, started, outcome = argv[at], argv[at + 1], argv[at + 2], argv[at + 3]
    local key = record_key(records, id)
    local R = call("HMGET", key, "e", "s", "n", "b", "m")
    at = at + 4
    -- The same delivery twice in one call: the second is lost, as it would be in a later call.
    local fine = R[1] == epoch and (R[2] == "active" or R[2] == "processing") and not seen[id]
    seen[id] = fine or seen[id]
    verdicts[i] = fine and "o" or "l"
    if not R[5] and R[2] == "active" and (outcome == "c" or outcome == "cR") then
      -- Most are these: `settle_plain` ends them together.
      local result = outcome == "cR" and argv[at]
      if result then
        at = at + 1
      end
      if fine then
        count = count + 1
        if R[4] ~= bytes then
          bytes, size = R[4], tonumber(R[4])
        end
        plain.ids[count], plain.keys[count], plain.started[count], plain.kinds[count] = id, key, started, R[3]
        plain.results[count], plain.bytes = result, plain.bytes + size
      end
    else
      local J = {id = id, key = key, started = started, outcome = string.sub(outcome, 1, 1)}
      for n = 2, #outcome do
        J[string.sub(outcome, n, n)] = argv[at]
        at = at + 1
      end
      if fine then
        J.record = call("HMGET", key, "e", "s", "n", "b", "q", "f", "v", "x", "t", "kp", "w", "o",
          "u", "rp", "rn", "z")
        held[#held + 1] = J
      end
    end
  end
  return held, table.concat(verdicts), plain
end
