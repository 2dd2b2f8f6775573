-- emit: adds one event to a metric stream. Usable by any script that holds a stream's key in its slot.
-- `length`: approximate number of entries the stream keeps; "0": emit nothing. `fields`: names and values in turn.
-- `trims`: whether this call trims the stream to its length. Trimming costs a quarter of the call, so not every call
-- needs it; between two trims the stream exceeds its length by the entries added.
-- Returns false after a failure, and never fails the script. O(fields)
local function emit(stream, length, fields, trims)
  if length == "0" then
    return true
  end
  for _ = 1, 2 do
    local reply
    if trims then
      reply = redis.pcall("XADD", stream, "MAXLEN", "~", length, "*", unpack(fields))
    else
      reply = redis.pcall("XADD", stream, "*", unpack(fields))
    end
    if type(reply) ~= "table" then
      return true
    end
    -- Redis accepts only strings and numbers. Most events hold nothing else, so values are converted only after
    -- a first refusal.
    for index, value in ipairs(fields) do
      fields[index] = type(value) == "number" and value or tostring(value)
    end
  end
  return false
end
