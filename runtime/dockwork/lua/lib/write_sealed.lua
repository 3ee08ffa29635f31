--- @include "whole"
--- @include "record_key"
-- Puts other values in the place of a job's envelope, checkpoint and result ("": it stays), with the bytes that count.
local function write_sealed(K, S, key, J)
  local outputs = record_key(K.outputs, J.id)
  if J.envelope ~= "" then
    local more = #J.envelope - J.bytes
    redis.call("SET", record_key(K.envelopes, J.id), J.envelope)
    redis.call("HSET", key, "b", whole(#J.envelope), "m", "1")
    if redis.call("HEXISTS", key, "kb") == 1 then
      redis.call("HSET", key, "kb", whole(#J.envelope))
      S.kept = S.kept + more
    else
      S.bytes = S.bytes + more
    end
  end
  if J.checkpoint ~= "" then
    redis.call("HSET", outputs, "checkpoint", J.checkpoint)
  end
  if J.result ~= "" then
    local old = redis.call("HSTRLEN", outputs, "result")
    redis.call("HSET", outputs, "result", J.result)
    if J.state == "completed" then
      redis.call("HSET", key, "kb", whole(#J.result))
      S.kept_completed = S.kept_completed + #J.result - old
    end
  end
  redis.call("HINCRBY", key, "rv", "1")
end
