-- How many jobs wait behind what: {paused, rate, concurrency, key}. Of a barred queue all of them do; else those
-- whose concurrency key is full. `till`: a rate that lets something start before it bars nothing.
local function throttled_by(K, S, ready, prio, till)
  local by = {0, 0, 0, (S.held_ready or 0) + (S.held_prio or 0)}
  local claimable = ready + prio
  if S.paused or S.held then
    by[1], by[4] = claimable + by[4], 0
  elseif S.concurrency and redis.call("ZCARD", K.lease) >= S.concurrency then
    by[3] = claimable
  elseif S.rate and S.throttled > till then
    by[2] = claimable
  end
  return by
end
