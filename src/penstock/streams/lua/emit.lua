-- emit: add a batch of events to their streams, once.
-- KEYS[1]      the emitter's mark: the number of the last batch it added
-- KEYS[2..]    the streams
-- ARGV[1]      the batch's number
-- ARGV[2]      seconds the mark lives
-- ARGV[3]      the events as MessagePack: a list of lists, each the stream (from 1), then names and values
-- ARGV[4..]    per stream: its maximum length
-- Returns      {events refused, the first refusal's text}; {0, ""} also for a batch that was added before.
-- Complexity   O(events)
local mark, number, life, events = KEYS[1], ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])
if redis.call("GET", mark) == number then
  return { 0, "" }
end
redis.call("SET", mark, number, "EX", life)

local refused, first = 0, ""
for _, event in ipairs(events) do
  local stream = event[1]
  local added =
    redis.pcall("XADD", KEYS[1 + stream], "MAXLEN", "~", ARGV[3 + stream], "*", unpack(event, 2))
  if type(added) == "table" and added.err then
    refused = refused + 1
    if first == "" then
      first = added.err
    end
  end
end
return { refused, first }
