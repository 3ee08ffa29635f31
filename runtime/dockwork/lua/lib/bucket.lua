-- The histogram bucket of a span: the smallest b with ms < 2^b, at most 32.
local function bucket(ms)
  if ms <= 0 then
    return 0
  end
  local _, exponent = math.frexp(ms)
  return math.min(exponent, 32)
end
