-- emit: one event onto a metric stream, for any script that has a stream's key in its slot.
-- `length`: about how many entries the stream keeps; "0": nothing is emitted. `fields`: names and values in turn.
-- `trims`: whether this call cuts the stream back to its length. That costs a quarter of the whole, so it need not be
-- every call; the stream outgrows its length by what is added in between.
-- A failure is answered with false and never fails the script. O(fields)
local function emit(stream, length, fields, trims)
  if length == "0" then
    return true
  end
  for _ = 1, 2 do
    local added
    if trims then
      added = redis.pcall("XADD", stream, "MAXLEN", "~", length, "*", unpack(fields))
    else
      added = redis.pcall("XADD", stream, "*", unpack(fields))
    end
    if type(added) ~= "table" then
      return true
    end
    -- Redis takes strings and numbers only. Most events have no others, so this is not looked for beforehand.
    for place, value in ipairs(fields) do
      fields[place] = type(value) == "number" and value or tostring(value)
    end
  end
  return false
end
