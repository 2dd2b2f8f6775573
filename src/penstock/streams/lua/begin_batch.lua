-- begin_batch: mark a batch as open, unless another process holds the batch lock of the metric.
-- KEYS[1]     mark: the newest batch of the metric
-- KEYS[2]     lock: the batch lock of the metric
-- ARGV[1]     open_mark: mark of this batch while it is open
-- ARGV[2]     written_mark: mark of this batch after its events are in ClickHouse
-- Returns     {1 if the batch may begin else 0, the previous mark or ""}
-- Errors      none
-- Complexity  O(1)
local mark, lock = KEYS[1], KEYS[2]
local open_mark, written_mark = ARGV[1], ARGV[2]
local previous_mark = redis.call('GET', mark) or ''
if redis.call('EXISTS', lock) == 1 then
  return {0, previous_mark}
end
if previous_mark ~= written_mark then
  redis.call('SET', mark, open_mark)
end
return {1, previous_mark}
