-- What is reported of a job whose worker was lost once too often, as JSON; nobody was left to say more.
local function lost_failure(S, owner, cause)
  local worker = string.gsub(owner, '[%c"\\]', "")
  return '{"class":"WorkerLost","message":"deliveries used: ' .. cause .. '","trace":"","worker":"' .. worker
    .. '","at":' .. S.now .. "}"
end
