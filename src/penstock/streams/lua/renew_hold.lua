-- Make one's own hold last, or end it.
-- KEYS: hold. ARGV: owner, and how long in ms; 0 ends it.
-- Returns 1 if it was the owner's, else 0. Complexity O(1).
local hold = KEYS[1]
local owner, lasts_ms = ARGV[1], tonumber(ARGV[2])
if redis.call('GET', hold) ~= owner then
  return 0
end
if lasts_ms > 0 then
  redis.call('PEXPIRE', hold, lasts_ms)
else
  redis.call('DEL', hold)
end
return 1
