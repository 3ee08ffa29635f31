--- @include "record_keys"
--- @include "tally"
--- @include "tally_type"
--- @include "note"
--- @include "add_spans"
-- What `settle_plain` leaves besides the records: figures, events, and the keys that go.
local function count_plain(K, S, W, C, P, runs, keep)
  local count, kinds, done, spent = #runs, P.kinds, {}, {}
  for i = 1, count do
    local kind = kinds[i]
    done[kind], spent[kind] = (done[kind] or 0) + 1, (spent[kind] or 0) + runs[i]
  end
  for kind, number in pairs(done) do
    tally_type(S, kind, "c", number)
    if spent[kind] > 0 then
      tally_type(S, kind, "t", spent[kind])
    end
  end
  local run_ms = add_spans(S.runs, runs)
  tally(S.stats, "finished", count)
  tally(S.stats, "completed", count)
  tally(S.minute, "f", count)
  if run_ms > 0 then
    tally(S.stats, "run_ms", run_ms)
    tally(S.minute, "r", run_ms)
  end
  tally(S.leased, W.pod, -count)
  S.bytes = S.bytes - P.bytes
  local joined = table.concat(P.ids, " ")
  note(S, "processing", joined)
  note(S, "completed", joined)
  C.unlink = record_keys(K.envelopes, P.ids)
  if keep.none then
    for i = 1, count do
      C.unlink[count + i] = P.keys[i]
    end
  end
end
