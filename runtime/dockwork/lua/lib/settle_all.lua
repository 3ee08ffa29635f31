--- @include "tally"
--- @include "note"
--- @include "pod_of"
--- @include "remove_all"
--- @include "unlink_all"
--- @include "settle_run"
--- @include "settle_plain"
--- @include "settle_parked"
--- @include "add_delayed"
--- @include "leave_key"
-- Ends the deliveries that `read_settlements` found held. Takes their leases away first: maxmemory never refuses
-- that, nor then what follows. Answers what `trim_completed` has to know.
local function settle_all(K, S, W, held, plain)
  local ids, count = plain.ids, #plain.ids
  if count + #held == 0 then
    return
  end
  for i = 1, #held do
    ids[count + i] = held[i].id
  end
  remove_all(K.lease, ids)
  S.wrote = true
  for i = #ids, count + 1, -1 do
    ids[i] = nil
  end
  local C = {unlink = {}}
  if count > 0 then
    settle_plain(K, S, W, C, plain)
  end
  -- All that begins is told before what ends.
  for i = 1, #held do
    if held[i].record[2] == "active" and held[i].outcome ~= "p" then
      note(S, "processing", held[i].id)
    end
  end
  for i = 1, #held do
    local J = held[i]
    local owner = J.record[11] or W.owner
    tally(S.leased, owner == W.owner and W.pod or pod_of(owner), -1)
    if S.keyed then
      leave_key(S, J.id, "running")
    end
    if J.outcome == "p" then
      settle_parked(K, S, J)
    else
      settle_run(K, S, J, C)
    end
  end
  unlink_all(C.unlink)
  -- Before the claim of the same call: what is due at once belongs to it.
  add_delayed(K, S)
  return C
end
