-- Adds to a counter of `into` (S.stats, S.minute, S.leased, S.waits or S.runs), written by `finish`.
local function tally(into, field, number)
  into[field] = (into[field] or 0) + number
end
