-- The reply of a claim, or of a settle with its verdicts, a letter each.
local function answer(S, verdicts, claimed)
  local reply = {"ok", S.now, claimed[1], claimed[2], claimed[3], claimed[4], verdicts}
  for i = 5, #claimed do
    reply[i + 3] = claimed[i]
  end
  return reply
end
