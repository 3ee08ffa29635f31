--- @include "take_ids"
--- @include "write_taken"
--- @include "read_plain"
--- @include "write_plain"
-- Leases the first jobs of one index between two scores, until no place is left or the index has no more.
-- Jobs that are gone, out of time or cancelled are dealt with on the way, at most 1000 in a call.
local function take_from(K, S, W, T, index, from, to)
  local looked = 0
  while T.left > 0 and looked < 1000 do
    -- One more than there are places: it says whether work is left.
    local ids = redis.call("ZRANGEBYSCORE", index, from, to, "LIMIT", 0, T.left + 1)
    local asked = T.left
    if #ids == 0 then
      return
    end
    local extra = #ids > asked
    if extra then
      ids[#ids] = nil
    end
    local plain = read_plain(K, S, T, ids)
    local used = plain and #ids or take_ids(K, S, W, T, ids)
    if used > 0 then
      redis.call("ZREMRANGEBYRANK", index, 0, used - 1)
      S.wrote = true
      if plain then
        write_plain(S, W, T, ids, plain)
      else
        write_taken(K, S, W, T)
      end
    end
    looked = looked + used
    if used < #ids then
      -- The byte limit of one reply.
      T.left, T.more = 0, true
      return
    end
    if not extra then
      return
    end
    if T.left == 0 then
      T.more = true
    end
  end
  if not T.more and redis.call("ZCOUNT", index, from, to) > 0 then
    T.more = true
  end
end
