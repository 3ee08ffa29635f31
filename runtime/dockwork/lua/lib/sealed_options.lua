-- The key ids in a schedule's options (`z=k1,k2;`), between commas; "" where nothing is sealed.
local function sealed_options(options)
  return string.match(";" .. (options or ""), ";z=([^;]*)") or ""
end
