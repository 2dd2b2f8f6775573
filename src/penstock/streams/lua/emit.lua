-- emit: add a batch of events to their streams, exactly once, and add their counts to the emitted totals.
-- KEYS[1]      mark: the number of the last batch that this emitter added
-- KEYS[2]      totals: a hash of the counts that all emitters have added to the streams
-- KEYS[3..]    the streams
-- ARGV[1]      number: of this batch
-- ARGV[2]      ttl_s: how long the mark and the totals live
-- ARGV[3]      entries: MessagePack, a list of lists; each holds the number of the stream (from 1), then either
--              names and values, or the index in ARGV of a payload that holds many events
-- ARGV[4]      counts: MessagePack, a list per entry of fields of the totals and amounts in turn; an amount of 0
--              removes the field
-- ARGV[5..]    per stream two numbers: its maximum length in entries, and in bytes; then the payloads
-- Returns      {numbers (from 1) of the refused entries, error text of the first}; {{}, ""} also for a batch that
--              was added before
-- Errors       none
-- Complexity   O(entries)
local mark, totals, number, ttl_s = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local entries, counts = cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
if redis.call("GET", mark) == number then
  return { {}, "" }
end
redis.call("SET", mark, number, "EX", ttl_s)

local refused, first_error, has_counts = {}, "", false
for index, entry in ipairs(entries) do
  local key, max_length, reply = KEYS[2 + entry[1]], ARGV[3 + 2 * entry[1]], nil
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
  else
    local entry_counts = counts[index]
    for n = 1, #entry_counts, 2 do
      has_counts = true
      if entry_counts[n + 1] == 0 then
        redis.call("HDEL", totals, entry_counts[n])
      else
        redis.call("HINCRBY", totals, entry_counts[n], entry_counts[n + 1])
      end
    end
  end
end
if has_counts then
  redis.call("EXPIRE", totals, ttl_s)
end

-- Entries differ in size, so their number alone does not bound memory. Where the user may not call MEMORY, only the
-- number of entries is bounded.
for stream = 1, #KEYS - 2 do
  local key, max_bytes = KEYS[2 + stream], tonumber(ARGV[4 + 2 * stream])
  local used_bytes = redis.pcall("MEMORY", "USAGE", key, "SAMPLES", 5)
  if type(used_bytes) == "number" and used_bytes > max_bytes then
    local length = redis.pcall("XLEN", key)
    if type(length) == "number" then
      redis.call("XTRIM", key, "MAXLEN", "~", math.floor(length * max_bytes / used_bytes))
    end
  end
end
return { refused, first_error }
