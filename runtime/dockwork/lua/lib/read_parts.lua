-- What seals which part of a job, as a caller says it: "ak1,ck2,r" -> {a = {"k1"}, c = {"k2"}, r = {}}.
local function read_parts(text)
  local parts = {}
  for part, id in string.gmatch(text, "(%l)([^,]*)") do
    local ids = parts[part] or {}
    if id ~= "" then
      ids[#ids + 1] = id
    end
    parts[part] = ids
  end
  return parts
end
