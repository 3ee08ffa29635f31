-- The field "m" of a record with options `set`: "o<attempts>,<timeout>" where it has no other option, each empty where it
-- is not set; "n..." where it also goes when it completes (kp=none); else "1", and readers look for themselves.
local function mark_of(set)
  for name, value in pairs(set) do
    if name ~= "mr" and name ~= "to" and (name ~= "kp" or value ~= "none") then return "1" end
  end
  return (set.kp and "n" or "o") .. (set.mr or "") .. "," .. (set.to or "")
end
