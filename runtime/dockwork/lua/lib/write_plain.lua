--- @include "whole"
--- @include "tally"
--- @include "note"
--- @include "add_spans"
-- Leases the jobs `ids` that `read_plain` found: `write_taken` for a whole batch. The reply has them as two elements,
-- `epoch`, then id, time and type of each, in lines; and the list of their envelopes.
local function write_plain(S, W, T, ids, P)
  local call, keys, leases = redis.call, P.keys, T.leases
  local epoch, owner, expires = whole(S.us), W.owner, whole(S.ms + S.lease_ms)
  local at, count = #leases, #ids
  for i = 1, count do
    call("HSET", keys[i], "s", "active", "e", epoch, "w", owner, "v", "1")
    leases[at + 1], leases[at + 2] = expires, ids[i]
    at = at + 2
  end
  local waits = add_spans(S.waits, P.waits)
  if waits > 0 then
    tally(S.stats, "wait_ms", waits)
  end
  T.rows[#T.rows + 1] = epoch .. "\n" .. P.heads
  T.rows[#T.rows + 1] = P.bodies
  T.count = T.count + count
  T.left = T.left - count
  T.receipt[#T.receipt + 1] = table.concat(ids, " " .. epoch .. " ") .. " " .. epoch
  note(S, "active", table.concat(ids, " "))
end
