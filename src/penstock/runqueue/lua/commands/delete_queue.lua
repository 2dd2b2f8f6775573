-- delete_queue: deletes a queue that holds no task, with its limit and its pause.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- Returns   1
-- Errors    UNKNOWNQUEUE, NOTEMPTY
-- Complexity  O(log n)
--- @include "all"
local name = ARGV[3]

local queue, result = load_queue(name), 1
local dead = redis.call("ZCARD", dead_of .. name)
if not queue.created_ms then
  result = redis.error_reply("UNKNOWNQUEUE there is no such queue")
elseif queue.eligible + queue.delayed + queue.running + dead > 0 then
  result = redis.error_reply("NOTEMPTY " .. string.format(
    "The queue still has tasks (%d eligible, %d delayed, %d running, %d dead). Let them finish and delete the dead ones.",
    queue.eligible, queue.delayed, queue.running, dead))
else
  redis.call("DEL", queue_of .. name)
  redis.call("SREM", queues_of .. queue.environment.name, name)
  queue.limits_changed, queue.max_running = true, queue.environment.limit or math.huge
end
return finish(result)
