-- renew_lock: extend or release a batch lock that the caller owns.
-- KEYS[1]     lock: the batch lock of a metric
-- ARGV[1]     owner: name of the caller
-- ARGV[2]     ttl_ms: how long the lock lasts from now; 0 releases it
-- Returns     1 if the caller owned the lock, else 0
-- Errors      none
-- Complexity  O(1)
local lock = KEYS[1]
local owner, ttl_ms = ARGV[1], tonumber(ARGV[2])
if redis.call('GET', lock) ~= owner then
  return 0
end
if ttl_ms > 0 then
  redis.call('PEXPIRE', lock, ttl_ms)
else
  redis.call('DEL', lock)
end
return 1
