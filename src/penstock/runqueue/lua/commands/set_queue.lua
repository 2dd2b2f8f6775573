-- set_queue: a queue's limit, or whether it is paused.
-- ARGV[3]   queue
-- ARGV[4]   field: "limit" or "paused"
-- ARGV[5]   value: the limit, "" for none; "1" or "0"
-- Returns   1
-- Errors    none
-- Complexity  O(log n)
--- @include "all"
local name, field, value = ARGV[3], ARGV[4], ARGV[5]

local queue = open_queue(name)
make_queue(queue)
queue.limits_changed = true
if field == "paused" then
  queue.paused = value == "1"
else
  queue.limit = tonumber(value)
  queue.most = math.min(queue.limit or math.huge, queue.environment.limit or math.huge)
end
if value == "" then
  redis.call("HDEL", queue_of .. name, field)
else
  redis.call("HSET", queue_of .. name, field, value)
end
return finish(1)
