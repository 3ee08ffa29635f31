--- @include "whole"
--- @include "record_key"
--- @include "keep_of"
--- @include "count_plain"
-- Ends the plain jobs that `read_settlements` found and that completed: `settle_run` for a whole batch.
local function settle_plain(K, S, W, C, P)
  local call, ids, keys, now, started = redis.call, P.ids, P.keys, S.now, P.started
  local keep, index, runs, kept = keep_of(K, S, C), S.ended.completed or {}, {}, 0
  local at, last, text, run = #index, nil, nil, nil
  for i = 1, #ids do
    -- Most began in the same moment: the number is read from text once.
    if started[i] ~= last then
      last, text = started[i], started[i]
      local ms = tonumber(text)
      if not ms or ms <= 0 or ms > S.ms then
        ms, text = S.ms, now
      end
      run = S.ms - ms
    end
    runs[i] = run
    local result = P.results[i]
    if not keep.none then
      if result then
        kept = kept + #result
        call("HSET", record_key(K.outputs, ids[i]), "result", result)
        call("HSET", keys[i], "s", "completed", "t", text, "h", now, "kb", whole(#result))
      else
        call("HSET", keys[i], "s", "completed", "t", text, "h", now)
      end
      index[at + 1], index[at + 2] = now, ids[i]
      at = at + 2
    end
  end
  if at > 0 then
    S.ended.completed = index
  end
  S.kept_completed = S.kept_completed + kept
  count_plain(K, S, W, C, P, runs, keep)
end
