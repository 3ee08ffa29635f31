-- A whole number as text, all digits: `..` and tostring keep 14 only.
local function whole(number)
  return string.format("%.0f", number)
end
