-- Adds to a counter of `into` (S.stats, S.types, S.minute or S.leased), written by `finish`.
local function tally(into, field, number)
  into[field] = (into[field] or 0) + number
end
