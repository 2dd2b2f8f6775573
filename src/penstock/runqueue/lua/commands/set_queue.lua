-- set_queue: sets the concurrency limit of a queue, or pauses or resumes it.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   field: "limit" or "paused"
-- ARGV[5]   value: of "limit" a number, or "" for no limit; of "paused" "1" or "0"
-- Returns   1
-- Errors    UNKNOWNQUEUE for "paused"; setting a limit creates the queue
-- Complexity  O(log n)
--- @include "all"
local name, field, value = ARGV[3], ARGV[4], ARGV[5]

local queue = load_queue(name)
if field == "paused" and not queue.created_ms then
  return finish(redis.error_reply("UNKNOWNQUEUE there is no such queue"))
end
create_queue(queue)
queue.limits_changed = true
if field == "paused" then
  queue.paused = value == "1"
else
  queue.limit = tonumber(value)
  queue.max_running = math.min(queue.limit or math.huge, queue.environment.limit or math.huge)
end
if value == "" then
  redis.call("HDEL", queue_of .. name, field)
else
  redis.call("HSET", queue_of .. name, field, value)
end
return finish(1)
