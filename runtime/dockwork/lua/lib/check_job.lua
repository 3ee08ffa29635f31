--- @include "tally"
--- @include "read_options"
-- Reads a new job's options and holds it against the limits `L`, which it uses up. Answers nothing, or the refusal.
-- Sets job.state and the parsed options.
local function check_job(S, L, job)
  local options, bytes = job.set or read_options(job.options), #job.envelope
  local reason, current, limit
  local timeout = tonumber(options.to)
  if S.closed then
    reason, current, limit = "closed", 0, 0
  elseif bytes > L.max_payload then
    reason, current, limit = "payload", bytes, L.max_payload
  elseif timeout and L.max_timeout and timeout > L.max_timeout then
    reason, current, limit = "timeout", timeout, L.max_timeout
  elseif L.depth >= L.max_depth then
    reason, current, limit = "depth", L.depth, L.max_depth
  elseif S.bytes + bytes > L.max_bytes then
    reason, current, limit = "bytes", S.bytes, L.max_bytes
  end
  if reason then
    tally(S.stats, "rejected:" .. reason, 1)
    return string.format("!%s:%.0f:%.0f", reason, current, limit)
  end
  L.depth = L.depth + 1
  S.bytes = S.bytes + bytes
  job.bytes, job.set, job.priority = bytes, options, tonumber(options.p) or 0
  job.due = tonumber(options.at) or (options.since and S.ms + tonumber(options.since)) or S.ms
  job.state = (job.due > S.ms and "delayed") or (job.priority ~= 0 and "prioritized") or "ready"
end
