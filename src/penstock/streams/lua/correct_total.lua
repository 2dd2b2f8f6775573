-- correct_total: add an amount to one of the emitted totals, and an event to its stream, unless the total has changed.
-- KEYS[1]     totals: a hash of the counts that all emitters have added to the streams
-- KEYS[2]     stream: of the event
-- ARGV[1]     field: of the totals
-- ARGV[2]     expected: the value of the field; empty if it has none
-- ARGV[3]     amount: to add; may be negative
-- ARGV[4]     max_length: of the stream, in entries
-- ARGV[5..]   names and values of the event; none to correct the total alone
-- Returns     1 if the total was corrected else 0
-- Errors      those of XADD
-- Complexity  O(1)
local totals, stream = KEYS[1], KEYS[2]
local field, expected, amount, max_length = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if (redis.call("HGET", totals, field) or "") ~= expected then
  return 0
end
if #ARGV > 4 then
  redis.call("XADD", stream, "MAXLEN", "~", max_length, "*", unpack(ARGV, 5))
end
redis.call("HINCRBY", totals, field, amount)
return 1
