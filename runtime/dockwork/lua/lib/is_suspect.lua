-- Whether a job may be what kills its workers: crashes ended two of its deliveries, or all but the last that is
-- allowed. `crashes` are deliveries minus attempts; `own` is the job's own limit, or nothing.
local function is_suspect(S, crashes, own)
  return crashes > 0 and crashes >= math.min(2, (tonumber(own) or S.max_deliveries) - 1)
end
