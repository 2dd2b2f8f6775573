-- emit: add a batch of events to their streams, once.
-- KEYS[1]      the emitter's mark: the number of the last batch it added
-- KEYS[2..]    the streams
-- ARGV[1]      the batch's number
-- ARGV[2]      seconds the mark lives
-- ARGV[3]      the entries as MessagePack: a list of lists, each the stream (from 1), then either names and
--              values, or the place in ARGV of a payload that holds many events
-- ARGV[4..]    per stream two: its maximum length in entries, and in bytes; then the payloads
-- Returns      {places (from 1) of entries refused, the first refusal's text}; {{}, ""} also for a batch that
--              was added before.
-- Complexity   O(entries)
local mark, number, life, entries = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])
if redis.call("GET", mark) == number then
  return { {}, "" }
end
redis.call("SET", mark, number, "EX", life)

local refused, first = {}, ""
for place, entry in ipairs(entries) do
  local key, length, added = KEYS[1 + entry[1]], ARGV[2 + 2 * entry[1]], nil
  if #entry == 2 then
    added = redis.pcall("XADD", key, "MAXLEN", "~", length, "*", "p", ARGV[entry[2]])
  else
    added = redis.pcall("XADD", key, "MAXLEN", "~", length, "*", unpack(entry, 2))
  end
  if type(added) == "table" and added.err then
    refused[#refused + 1] = place
    if first == "" then
      first = added.err
    end
  end
end

-- Entries differ much in size, so their number alone bounds no memory. Where MEMORY is not allowed it has to.
for stream = 1, #KEYS - 1 do
  local key, most = KEYS[1 + stream], tonumber(ARGV[3 + 2 * stream])
  local used = redis.pcall("MEMORY", "USAGE", key, "SAMPLES", 5)
  if type(used) == "number" and used > most then
    local length = redis.pcall("XLEN", key)
    if type(length) == "number" then
      redis.call("XTRIM", key, "MAXLEN", "~", math.floor(length * most / used))
    end
  end
end
return { refused, first }
