-- Mark a batch as open, unless somebody holds the metric.
-- KEYS: mark, hold. ARGV: the mark of this batch when open, and when written.
-- Returns {1 if it may begin else 0, the mark before}. Complexity O(1).
local mark, hold = KEYS[1], KEYS[2]
local opened, written = ARGV[1], ARGV[2]
local before = redis.call('GET', mark) or ''
if redis.call('EXISTS', hold) == 1 then
  return {0, before}
end
if before ~= written then
  redis.call('SET', mark, opened)
end
return {1, before}
