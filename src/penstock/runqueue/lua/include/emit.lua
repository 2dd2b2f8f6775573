-- emit: one event onto a metric stream, for any script that has a stream's key in its slot.
-- `length`: about how many entries the stream keeps; "0": nothing is emitted. `fields`: names and values in turn.
-- A failure is answered with false and never fails the script. O(fields)
local function emit(stream, length, fields)
  if length == "0" then
    return true
  end
  for place = 2, #fields, 2 do
    local kind = type(fields[place])
    if kind ~= "number" and kind ~= "string" then -- Redis takes nothing else
      fields[place] = tostring(fields[place])
    end
  end
  return type(redis.pcall("XADD", stream, "MAXLEN", "~", length, "*", unpack(fields))) ~= "table"
end
