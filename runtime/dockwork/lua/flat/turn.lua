--- @include "count_type"
-- The ordinary call of settle and of claim, whose keys and arguments are the same but for the settlements: all that is
-- settled completed, all that is claimed is new and has no options but those of `m`, and nothing is due, lost, limited
-- or held. It says what the general way says and leaves what that leaves. Straight on, in locals: a call of five jobs
-- spent half on the general way's functions and tables. First all reads, then all writes.
-- `m` of a record: none, or o<attempts>,<timeout>; n the same and not kept; t or u<start> those in state "processing".
local call, format, sub = redis.call, string.format, string.sub
local argv, meta, ready, lease, completed = ARGV, KEYS[1], KEYS[2], KEYS[5], KEYS[6]
local records, envelopes, outputs = KEYS[22], KEYS[23], KEYS[24]
local number, owner, count = argv[1], argv[3], tonumber(argv[9] or "0")
local time = call("TIME")
local us = time[1] * 1000000 + time[2]
local ms = (us - us % 1000) / 1000
local now = format("%d", ms)
local Q = call("HMGET", meta, "schema", "run_id", "paused", "held", "ev", "fl", "parked", "seen", "lease", "reap_after",
  "rev", "bytes", "keptc", "keep_completed_age", "keep_completed_count")
local lease_ms = tonumber(argv[8])
if lease_ms <= 0 then lease_ms = tonumber(Q[9]) or 15000 end
if Q[1] ~= "1" or (Q[2] ~= argv[5] and argv[5] ~= "") or Q[3] or Q[4] or Q[5] or Q[6] or (Q[7] and Q[7] ~= "0")
  or not Q[8] or (ms - Q[8]) * 8 > lease_ms or count == 0 and argv[9] then
  return general()
end
local receipts, place = KEYS[26] .. owner, format("%d", number % 16)
local known = call("HGET", receipts, place)
if known and sub(known, 1, #number + 1) == number .. ";" then return general() end

-- When somebody should look again: a schedule's instant, a delayed job, the end of a lease.
local next_at
local cron_at, delayed = KEYS[28], KEYS[4]
if call("EXISTS", cron_at, delayed, KEYS[3], KEYS[19], KEYS[13]) > 0 then
  if call("EXISTS", KEYS[3], KEYS[19], KEYS[13]) > 0 then return general() end
  local tick = tonumber(call("ZRANGE", cron_at, "0", "0", "WITHSCORES")[2])
  local due = tonumber(call("ZRANGE", delayed, "0", "0", "WITHSCORES")[2])
  due = due and math.floor(due / 1024)
  next_at = tick and due and math.min(tick, due) or tick or due
  if next_at and next_at <= ms then return general() end
end
local first = call("ZRANGE", lease, "0", "0", "WITHSCORES")
local ends = tonumber(first[2])
if ends and ends <= ms then return general() end

-- What completed.
local keep_age, keep_count = tonumber(Q[14]) or 3600000, tonumber(Q[15]) or 1000
local none, kept_before = keep_count == 0 or keep_age == 0, tonumber(Q[13]) or 0
local ids, rows, goes, index, kept_ids = {}, {}, {}, {}, 0
local seen, done, spent, runs, begun, begins, mute = {}, {}, {}, {}, nil, nil, nil
local freed, kept, run_ms, times, kind, at = 0, kept_before, 0, 0, nil, 10
local start_text, began, run, slot, bytes, size
for i = 1, count do
  local id, outcome, started, row = argv[at], argv[at + 3], argv[at + 2], records .. argv[at]
  local R = call("HMGET", row, "e", "s", "n", "b", "m")
  local m = R[5]
  local letter = m and sub(m, 1, 1)
  if R[1] ~= argv[at + 1] or seen[id] or letter == "1" then return general() end
  if R[2] == "processing" then
    if letter ~= "t" and letter ~= "u" then return general() end
    started = sub(m, 2)
    if not begun then
      -- Those before this one; from here on each adds itself.
      begun = {}
      for n = 1, i - 1 do begun[n] = ids[n] end
    end
  elseif R[2] ~= "active" then
    return general()
  elseif begun then
    begun[#begun + 1] = id
  end
  -- Most of a call are alike: a number is read from text once, and figures are added up for all of a kind.
  if started ~= start_text then
    start_text, began, run = started, started, tonumber(started)
    if not run or run <= 0 or run > ms then run, began = ms, now end
    run = ms - run
    local _, exponent = math.frexp(run)
    slot = run > 0 and math.min(exponent, 32) or 0
  end
  if R[4] ~= bytes then bytes, size = R[4], tonumber(R[4]) or 0 end
  if R[3] ~= kind then
    if kind then done[kind], times = (done[kind] or 0) + times, 0 end
    kind = R[3]
  end
  times, freed, run_ms = times + 1, freed + size, run_ms + run
  runs[slot] = (runs[slot] or 0) + 1
  if run > 0 then spent[kind] = (spent[kind] or 0) + run end
  ids[i], seen[id], goes[i], rows[i] = id, true, envelopes .. id, row
  if none or letter == "n" or letter == "u" then
    mute = mute or {}
    mute[i] = true
  else
    index[kept_ids + 1], index[kept_ids + 2], kept_ids = now, id, kept_ids + 2
  end
  if began ~= argv[at + 2] then
    begins = begins or {}
    begins[i] = began
  end
  if outcome == "c" then
    at = at + 4
  elseif outcome == "cR" then
    if not (mute and mute[i]) then kept = kept + #argv[at + 4] end
    at = at + 5
  else
    return general()
  end
end
if kind then done[kind] = (done[kind] or 0) + times end

-- What is claimed.
local most = argv[2]
local next_ids, more, wanted = {}, false, tonumber(most)
if wanted == 0 then
  more = call("ZCARD", ready) > 0
else
  next_ids = call("ZRANGE", ready, "0", most)
  if #next_ids > wanted then more, next_ids[wanted + 1] = true, nil end
end
local taken, left, heads, texts, waits, wait_ms, head = #next_ids, tonumber(argv[7]), {}, {}, {}, 0, 0
local created, wait, wait_slot, marks
bytes = nil
for i = 1, taken do
  local id = next_ids[i]
  local row = records .. id
  local R = call("HMGET", row, "n", "c", "b", "m")
  local m = R[4]
  if not R[1] then return general() end
  if m then
    local letter = sub(m, 1, 1)
    if letter ~= "o" and letter ~= "n" then return general() end
    marks = marks or {}
    marks[i] = m
  end
  if R[3] ~= bytes then bytes, size = R[3], tonumber(R[3]) or 0 end
  left = left - size
  if left < 0 then return general() end
  if R[2] ~= created then
    created, wait = R[2], math.max(0, ms - R[2])
    local _, exponent = math.frexp(wait)
    wait_slot = wait > 0 and math.min(exponent, 32) or 0
  end
  waits[wait_slot], wait_ms = (waits[wait_slot] or 0) + 1, wait_ms + wait
  heads[head + 1], heads[head + 2], heads[head + 3] = id, created, R[1]
  head, texts[i], rows[count + i] = head + 3, envelopes .. id, row
end
local bodies = taken > 0 and call("MGET", unpack(texts))

-- What is dropped so that no more is kept than was said; see trim_completed.
local dropped = {}
if kept_ids > 0 and keep_count >= 0 then
  local over = call("ZCARD", completed) + kept_ids / 2 - keep_count
  local slack = more and math.min(keep_count / 20, 50) or 0
  if over > slack then
    over = call("ZCOUNT", completed, "-inf", "(4503599627370496") + kept_ids / 2 - keep_count
  end
  if over > slack then
    over = math.min(over, 500)
    dropped = call("ZRANGE", completed, "0", format("%d", over - 1))
    -- Fewer, or not all older than these: some of these would go.
    if #dropped < over or tonumber(call("ZSCORE", completed, dropped[over])) >= ms then return general() end
    for i = 1, over do
      local record = records .. dropped[i]
      if kept > 0 then
        local R = call("HMGET", record, "kb", "z")
        if R[2] then return general() end
        kept = math.max(0, kept - (tonumber(R[1]) or 0))
      end
      goes[count + 2 * i - 1], goes[count + 2 * i] = record, outputs .. dropped[i]
    end
  end
end

-- Nothing is in the way. The first write is one that a full Redis lets pass.
local epoch, expires, leases = format("%d", us), format("%d", ms + lease_ms), {}
for i = 1, taken do
  leases[2 * i - 1], leases[2 * i] = expires, next_ids[i]
end
if taken > 0 then call("ZREMRANGEBYRANK", ready, "0", format("%d", taken - 1)) end
-- While work is left nobody is told of the end of a lease: then the index gets the new ones first, and is never empty.
local early = more and ends and taken > 0
if early then call("ZADD", lease, unpack(leases)) end
if count > 0 then
  call("ZREM", lease, unpack(ids))
  local last = #goes
  at = 10
  for i = 1, count do
    local start = begins and begins[i] or argv[at + 2]
    local result = argv[at + 3] == "cR" and argv[at + 4]
    at = at + (result and 5 or 4)
    if mute and mute[i] then
      last = last + 1
      goes[last] = rows[i]
    elseif result then
      call("HSET", outputs .. ids[i], "result", result)
      call("HSET", rows[i], "s", "completed", "t", start, "h", now, "kb", format("%d", #result))
    else
      call("HSET", rows[i], "s", "completed", "t", start, "h", now)
    end
  end
  if index[1] then call("ZADD", completed, unpack(index)) end
  if dropped[1] then call("ZREMRANGEBYRANK", completed, "0", format("%d", #dropped - 1)) end
  call("UNLINK", unpack(goes))
  if ends and not more and seen[first[1]] then
    first = call("ZRANGE", lease, "0", "0", "WITHSCORES")
    ends = tonumber(first[2])
  end
end
if ends and not more then
  ends = math.max(ends, tonumber(Q[10]) or 0)
  if not next_at or ends < next_at then next_at = ends end
end
local reply = {"ok", now, next_at and format("%d", next_at) or false, more and 1 or 0, "", tonumber(Q[11]) or 0,
  string.rep("o", count)}
local receipt, stats, events, joined = "", KEYS[15], KEYS[14], nil
if taken > 0 then
  for i = 1, taken do
    call("HSET", rows[count + i], "s", "active", "e", epoch, "w", owner, "v", "1")
  end
  if not early then
    -- See add_leases: a skip list from the start.
    local long = not ends and taken > 8 and string.rep("-", 65)
    if long then call("ZADD", lease, "0", long) end
    call("ZADD", lease, unpack(leases))
    if long then call("ZREM", lease, long) end
  end
  if marks then
    local four = {}
    for i = 1, taken do
      four[4 * i - 3], four[4 * i - 2], four[4 * i - 1] = heads[3 * i - 2], heads[3 * i - 1], heads[3 * i]
      four[4 * i] = marks[i] or ""
    end
    heads = four
  end
  reply[8] = epoch .. (marks and "+\n" or "\n") .. table.concat(heads, "\n")
  reply[9] = bodies
  receipt = table.concat(next_ids, " " .. epoch .. " ") .. " " .. epoch
end

-- Events, figures, marker, receipt.
if count > 0 then
  joined = table.concat(ids, " ")
  local starts = begun and table.concat(begun, " ") or joined
  if starts ~= "" then
    call("XADD", events, "MAXLEN", "~", "50000", "*", "name", "processing", "ids", starts)
  end
  call("XADD", events, "MAXLEN", "~", "50000", "*", "name", "completed", "ids", joined)
  local minutes = math.floor(ms / 60000)
  local type_stats, hour, minute = KEYS[16], KEYS[21] .. format("%d", minutes / 60), format("%d", minutes % 60)
  -- 48 hours from its last minute on.
  if call("HINCRBY", hour, minute .. "f", argv[9]) == count then call("PEXPIRE", hour, "176400000") end
  if run_ms > 0 and call("HINCRBY", hour, minute .. "r", format("%d", run_ms)) == run_ms then
    call("PEXPIRE", hour, "176400000")
  end
  for name, ended in pairs(done) do
    count_type(type_stats, name, "c", format("%d", ended))
    if spent[name] then count_type(type_stats, name, "t", format("%d", spent[name])) end
  end
  local left_bytes = format("%d", (tonumber(Q[12]) or 0) - freed)
  if kept ~= kept_before then
    call("HSET", meta, "bytes", left_bytes, "keptc", format("%d", kept))
  elseif freed ~= 0 then
    call("HSET", meta, "bytes", left_bytes)
  end
end
if taken > 0 then
  call("XADD", events, "MAXLEN", "~", "50000", "*", "name", "active", "ids", table.concat(next_ids, " "))
end
if next(waits) == wait_slot and next(runs) == slot and wait_slot and slot and next(waits, wait_slot) == nil
  and next(runs, slot) == nil then
  -- All waits, and all runs, fall into one field each: one HSET for seven figures that took a command each.
  local w, u = "w" .. wait_slot, "u" .. slot
  local F = call("HMGET", stats, "finished", "completed", "claimed", "run_ms", "wait_ms", u, w)
  call("HSET", stats, "finished", format("%d", (F[1] or 0) + count), "completed", format("%d", (F[2] or 0) + count),
    "claimed", format("%d", (F[3] or 0) + taken), "run_ms", format("%d", (F[4] or 0) + run_ms),
    "wait_ms", format("%d", (F[5] or 0) + wait_ms), u, format("%d", (F[6] or 0) + count),
    w, format("%d", (F[7] or 0) + taken))
else
  if count > 0 then
    call("HINCRBY", stats, "finished", argv[9])
    call("HINCRBY", stats, "completed", argv[9])
    if run_ms > 0 then call("HINCRBY", stats, "run_ms", format("%d", run_ms)) end
    for exponent, number in pairs(runs) do
      call("HINCRBY", stats, "u" .. exponent, number)
    end
  end
  if taken > 0 then
    call("HINCRBY", stats, "claimed", taken)
    if wait_ms > 0 then call("HINCRBY", stats, "wait_ms", format("%d", wait_ms)) end
    for exponent, number in pairs(waits) do
      call("HINCRBY", stats, "w" .. exponent, number)
    end
  end
end
if taken ~= count and call("HINCRBY", KEYS[20], argv[4], taken - count) <= 0 then
  call("HDEL", KEYS[20], argv[4])
end
if more then call("ZADD", KEYS[12], "0", "1", "0", "2") end
if (argv[9] or taken > 0)
  and call("HSET", receipts, place, number .. ";" .. reply[7] .. ";" .. receipt) == 1 then
  call("PEXPIRE", receipts, "600000")
end
return reply
