-- Who claims, from ARGV[first] on: number, places, owner, pod, run_id, known, most_bytes, lease_ms.
local function claimant(first)
  return {
    number = ARGV[first], places = tonumber(ARGV[first + 1]), owner = ARGV[first + 2], pod = ARGV[first + 3],
    run_id = ARGV[first + 4], known = ARGV[first + 5], most_bytes = tonumber(ARGV[first + 6]),
    lease_ms = tonumber(ARGV[first + 7]),
  }
end
