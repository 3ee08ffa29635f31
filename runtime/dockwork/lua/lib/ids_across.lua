-- A page of ids from several indexes laid end to end.
local function ids_across(keys, offset, limit)
  local page = {}
  for i = 1, #keys do
    local size = redis.call("ZCARD", keys[i])
    if offset < size and #page < limit then
      for _, id in ipairs(redis.call("ZRANGE", keys[i], offset, offset + limit - #page - 1)) do
        page[#page + 1] = id
      end
    end
    offset = math.max(0, offset - size)
  end
  return page
end
