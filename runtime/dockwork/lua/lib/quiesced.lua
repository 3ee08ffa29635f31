-- Whether the operator asked this pod to claim no more; answers the request's token, or nothing.
local function quiesced(K, S, pod)
  local request = redis.call("HGET", K.quiesce, pod)
  if request then
    local expires, token = string.match(request, "^(%d+) (.*)$")
    if tonumber(expires) > S.ms then
      return token
    end
  end
end
