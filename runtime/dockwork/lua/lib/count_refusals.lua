-- Counts what an enqueue refused, which stored nothing; unless that is refused too.
local function count_refusals(K, S)
  for refusal, number in pairs(S.stats) do
    redis.pcall("HINCRBY", K.stats, refusal, number)
  end
end
