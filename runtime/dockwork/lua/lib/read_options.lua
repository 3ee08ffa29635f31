-- A new job's options by name: `name=value;` each.
local function read_options(text)
  local options = {}
  if text ~= "" then
    for name, value in string.gmatch(text, "(%l+)=([^;]*)") do
      options[name] = value
    end
  end
  return options
end
