-- Adds to a figure of one job type: c completed, r retried, f failed, d dead, t run time in ms.
local function tally_type(S, kind, letter, number)
  local figures = S.types[kind]
  if not figures then
    figures = {}
    S.types[kind] = figures
  end
  figures[letter] = (figures[letter] or 0) + number
end
