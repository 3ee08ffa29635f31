--- @include "record_keys"
-- Reads the records of `ids` if all of them are plain: nothing but type, state, seq, created and bytes, which most
-- jobs have that were never claimed. Answers {keys, heads, waits, bodies}, or nothing for `take_ids` to deal with them.
local function read_plain(K, S, T, ids)
  local call, keys = redis.call, record_keys(K.records, ids)
  local heads, waits, left = {}, {}, T.bytes
  local at, created, wait, bytes, size = 0, nil, nil, nil, nil
  for i = 1, #ids do
    local R = call("HMGET", keys[i], "n", "c", "b", "m")
    if R[4] or not R[1] then
      return
    end
    -- Jobs of one call have the same times and often sizes: numbers are read from text once.
    if R[3] ~= bytes then
      bytes, size = R[3], tonumber(R[3])
    end
    left = left - size
    if left < 0 then
      return
    end
    if R[2] ~= created then
      created = R[2]
      wait = math.max(0, S.ms - tonumber(created))
    end
    waits[i] = wait
    heads[at + 1], heads[at + 2], heads[at + 3] = ids[i], created, R[1]
    at = at + 3
  end
  T.bytes = left
  local bodies = call("MGET", unpack(record_keys(K.envelopes, ids)))
  return {keys = keys, heads = table.concat(heads, "\n"), waits = waits, bodies = bodies}
end
