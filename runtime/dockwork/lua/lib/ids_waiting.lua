--- @include "record_key"
--- @include "ids_across"
-- A page of the jobs in `indexes`, and after them of those that wait aside, with scores in one of `spans`: key by key.
local function ids_waiting(K, S, indexes, spans, offset, limit)
  local page = ids_across(indexes, offset, limit)
  if not S.keyed or #page >= limit then
    return page
  end
  for i = 1, #indexes do
    offset = math.max(0, offset - redis.call("ZCARD", indexes[i]))
  end
  local keys = redis.call("HKEYS", K.held_keys)
  table.sort(keys)
  for i = 1, #keys do
    local held = record_key(K.held_jobs, keys[i])
    for _, span in ipairs(spans) do
      if #page < limit then
        local ids = redis.call("ZRANGEBYSCORE", held, span[1], span[2], "LIMIT", offset, limit - #page)
        for n = 1, #ids do
          page[#page + 1] = ids[n]
        end
        offset = #ids > 0 and 0 or math.max(0, offset - redis.call("ZCOUNT", held, span[1], span[2]))
      end
    end
  end
  return page
end
