-- emit: add a batch of events to their streams, exactly once.
-- KEYS[1]      mark: the number of the last batch that this emitter added
-- KEYS[2..]    the streams
-- ARGV[1]      number: of this batch
-- ARGV[2]      mark_ttl_s: how long the mark lives
-- ARGV[3]      entries: MessagePack, a list of lists; each holds the number of the stream (from 1), then either
--              names and values, or the index in ARGV of a payload that holds many events
-- ARGV[4..]    per stream two numbers: its maximum length in entries, and in bytes; then the payloads
-- Returns      {numbers (from 1) of the refused entries, error text of the first}; {{}, ""} also for a batch that
--              was added before
-- Errors       none
-- Complexity   O(entries)
local mark, number, mark_ttl_s, entries = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])
if redis.call("GET", mark) == number then
  return { {}, "" }
end
redis.call("SET", mark, number, "EX", mark_ttl_s)

local refused, first_error = {}, ""
for index, entry in ipairs(entries) do
  local key, max_length, reply = KEYS[1 + entry[1]], ARGV[2 + 2 * entry[1]], nil
  if #entry == 2 then
    reply = redis.pcall("XADD", key, "MAXLEN", "~", max_length, "*", "p", ARGV[entry[2]])
  else
    reply = redis.pcall("XADD", key, "MAXLEN", "~", max_length, "*", unpack(entry, 2))
  end
  if type(reply) == "table" and reply.err then
    refused[#refused + 1] = index
    if first_error == "" then
      first_error = reply.err
    end
  end
end

-- Entries differ in size, so their number alone does not bound memory. Where the user may not call MEMORY, only the
-- number of entries is bounded.
for stream = 1, #KEYS - 1 do
  local key, max_bytes = KEYS[1 + stream], tonumber(ARGV[3 + 2 * stream])
  local used_bytes = redis.pcall("MEMORY", "USAGE", key, "SAMPLES", 5)
  if type(used_bytes) == "number" and used_bytes > max_bytes then
    local length = redis.pcall("XLEN", key)
    if type(length) == "number" then
      redis.call("XTRIM", key, "MAXLEN", "~", math.floor(length * max_bytes / used_bytes))
    end
  end
end
return { refused, first_error }
