-- Who claims, from ARGV[first] on: number, places, owner, pod, run_id, known, most_bytes, lease_ms.
local function claimant(S, first)
  local lease_ms = tonumber(ARGV[first + 7])
  if lease_ms > 0 then
    S.lease_ms = lease_ms
  end
  return {
    number = ARGV[first], places = tonumber(ARGV[first + 1]), owner = ARGV[first + 2], pod = ARGV[first + 3],
    run_id = ARGV[first + 4], known = ARGV[first + 5], most_bytes = tonumber(ARGV[first + 6]),
  }
end
