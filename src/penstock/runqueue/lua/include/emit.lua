-- emit: one event onto a metric stream, for any script that has a stream's key in its slot.
-- `length`: about how many entries the stream keeps; "0": nothing is emitted. `fields`: names and values in turn.
-- A failure is answered with false and never fails the script. O(fields)
local function emit(stream, length, fields)
  if length == "0" then
    return true
  end
  for place, value in ipairs(fields) do
    fields[place] = type(value) == "number" and string.format("%.0f", value) or tostring(value)
  end
  local added = redis.pcall("XADD", stream, "MAXLEN", "~", length, "*", unpack(fields))
  return type(added) ~= "table"
end
