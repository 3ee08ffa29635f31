--- @include "whole"
--- @include "record_key"
--- @include "tally"
--- @include "add_all"
--- @include "when_full"
--- @include "promote_due"
--- @include "reap_ended"
--- @include "quiesced"
--- @include "earliest"
--- @include "take_from"
--- @include "take_parked"
--- @include "free_keys"
--- @include "limit_places"
--- @include "throttle"
--- @include "add_leases"
-- The claim: promotes, reaps, then leases at most `W.places` jobs to `W.owner` in the order of RT-071. Answers
-- the reply {next_at or false (as if more), more 0 to 3, refused, revision, claim...}; see claim.lua for a claim's fields.
local function take(K, S, W)
  local _, due = promote_due(K, S, 200)
  local _, _, ends = reap_ended(K, S, W.run_id, 100)
  if S.freed then free_keys(S) end
  if #S.ready > 0 then add_all(K.ready, S.ready) end
  if #S.prio > 0 then
    add_all(K.prio, S.prio)
    S.none = false
  end

  local T = {rows = {}, count = 0, left = W.places, bytes = W.most_bytes, more = false, receipt = {}, leases = {}}
  local refused = (S.paused and "paused") or (S.held and "held") or ""
  if refused == "" and W.places > 0 and not S.none and quiesced(K, S, W.pod) then
    refused = "quiesced"
  end
  local limited, throttled
  if refused == "" then
    if S.limits then
      limited = limit_places(K, S)
      T.left = math.min(T.left, limited.left)
    end
    local prio = S.none and 0 or redis.call("ZCARD", K.prio)
    if S.parked > 0 and T.left > 0 then
      take_parked(K, S, W, T)
    end
    if prio > 0 then
      take_from(K, S, W, T, K.prio, "-inf", "(0")
    end
    take_from(K, S, W, T, K.ready, "-inf", "+inf")
    if prio > 0 then
      take_from(K, S, W, T, K.prio, "(0", "+inf")
    end
    if limited then
      throttled = throttle(K, S, T, limited, T.count)
    end
    S.claimable = T.more and 2 or 0
  elseif refused == "quiesced" then
    S.claimable = redis.call("ZCARD", K.ready) + redis.call("ZCARD", K.prio)
  end

  local count = T.count
  if count > 0 then
    add_leases(K, T, ends)
    tally(S.leased, W.pod, count)
    tally(S.stats, "claimed", count)
    if type(T.suspect) == "string" then
      -- Beside the receipts, which each claim keeps for as long.
      redis.call("HSET", record_key(K.receipts, W.owner), "suspect", whole(S.ms + 600000) .. " " .. T.suspect)
    end
  end
  -- While work is left nobody waits for the end of a lease.
  local next_at = earliest(earliest(earliest(earliest(due, not T.more and ends), S.next_tick), S.due), throttled)
  local head = {next_at and whole(next_at) or false, (T.more and 1 or 0) + (T.parked or 0), refused, S.revision}
  for i = 1, #T.rows do
    head[4 + i] = T.rows[i]
  end
  return head, table.concat(T.receipt, " ")
end
