--- @include "bucket"
-- Enters spans in ms into a histogram; answers their sum. Most of one call are the same.
local function add_spans(histogram, spans)
  local sum, last, at = 0, nil, nil
  for i = 1, #spans do
    local span = spans[i]
    if span ~= last then
      last, at = span, bucket(span)
    end
    sum = sum + span
    histogram[at] = (histogram[at] or 0) + 1
  end
  return sum
end
