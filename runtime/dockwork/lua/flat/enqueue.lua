--- @include "plain_options"
-- `enqueue` for the ordinary call, straight on: jobs with ids of their own that are due now and ask for nothing, or only
-- for what a job type declares; a queue that is open, without limits of starts or keys, that writes its events to the
-- stream. Before its first write it leaves to `general` whatever is not so; both write the same, an MSET first (RT-061).
local count, call, format = tonumber(ARGV[1]), redis.call, string.format
if count < 1 then return general() end
local meta = call("HMGET", KEYS[1], "schema", "seq", "bytes", "parked", "max_depth", "max_bytes", "max_payload", "paused",
  "held", "closed", "fl", "ev")
if meta[1] ~= "1" or meta[10] or meta[11] or meta[12] then return general() end
local seq, bytes, largest = tonumber(meta[2]) or 0, tonumber(meta[3]) or 0, tonumber(meta[7]) or 262144
local records, envelopes, ids, names, texts, asked, sizes = KEYS[12], KEYS[13], {}, {}, {}, {}, {}
for i = 1, count do
  local at = 4 * i - 2
  local id, options, envelope = ARGV[at], ARGV[at + 2], ARGV[at + 3]
  local size = #envelope
  if options ~= "" and not asked[options] then
    asked[options] = plain_options(options)
    if not asked[options] then return general() end
  end
  if size > largest then return general() end
  ids[i], sizes[i], bytes = id, size, bytes + size
  names[i], texts[2 * i - 1], texts[2 * i] = records .. id, envelopes .. id, envelope
end
if bytes > (tonumber(meta[6]) or 2147483648) then return general() end
-- One look for what nearly never is there: a known job, a priority, a delayed job, a cold queue.
local ready, prio, delayed, cold = KEYS[2], KEYS[3], KEYS[4], KEYS[8]
local depth, is_cold = (tonumber(meta[4]) or 0) + call("ZCARD", ready) + call("ZCARD", KEYS[5]), false
names[count + 1], names[count + 2], names[count + 3] = prio, delayed, cold
if call("EXISTS", unpack(names)) > 0 then
  if call("EXISTS", unpack(names, 1, count)) > 0 then return general() end
  depth, is_cold = depth + call("ZCARD", prio) + call("ZCARD", delayed), call("GET", cold)
end
if depth + count > (tonumber(meta[5]) or 1000000) then return general() end

local time = call("TIME")
local ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- "%d": a third of what "%.0f" takes, and as exact for whole numbers.
local now, size, text, place = format("%d", ms), nil, nil, nil
call("MSET", unpack(texts))
for i = 1, count do
  local at = 4 * i - 1
  place = format("%d", seq + i)
  if sizes[i] ~= size then
    size = sizes[i]
    text = format("%d", size)
  end
  local more = asked[ARGV[at + 1]]
  if more then
    call("HSET", names[i], "n", ARGV[at], "s", "ready", "q", place, "c", now, "b", text, unpack(more))
  else
    call("HSET", names[i], "n", ARGV[at], "s", "ready", "q", place, "c", now, "b", text)
  end
  texts[2 * i - 1], texts[2 * i] = place, ids[i]
end
call("HSET", KEYS[1], "seq", place, "bytes", format("%d", bytes))
call("ZADD", ready, unpack(texts))
call("XADD", KEYS[9], "MAXLEN", "~", "50000", "*", "name", "ready", "ids", table.concat(ids, " "))
local stats, minutes = KEYS[10], math.floor(ms / 60000)
call("HINCRBY", stats, "enqueued", ARGV[1])
call("HINCRBY", stats, "entered", ARGV[1])
local hour = KEYS[11] .. format("%d", math.floor(minutes / 60))
if call("HINCRBY", hour, format("%da", minutes % 60), ARGV[1]) == count then
  call("PEXPIRE", hour, "176400000")
end
if not (meta[8] or meta[9]) then
  if count == 1 then
    call("ZADD", KEYS[7], "0", "1")
  else
    local markers = {"0", "1", "0", "2", "0", "3", "0", "4", "0", "5", "0", "6", "0", "7", "0", "8"}
    call("ZADD", KEYS[7], unpack(markers, 1, math.min(2 * count, 16)))
  end
  if is_cold then
    call("DEL", cold)
    redis.pcall("PUBLISH", is_cold, "")
  end
end
return {"ok", "*"}
