-- delete_queue: a queue without tasks is forgotten, with its limit and its pause.
-- ARGV[3]   queue
-- Returns   1
-- Errors    UNKNOWNQUEUE, NOTEMPTY
-- Complexity  O(log n)
--- @include "all"
local name = ARGV[3]

local queue, result = open_queue(name), 1
local dead = redis.call("ZCARD", dead_of .. name)
if not queue.made then
  result = redis.error_reply("UNKNOWNQUEUE there is no such queue")
elseif queue.eligible + queue.delayed + queue.running + dead > 0 then
  result = redis.error_reply("NOTEMPTY " .. string.format(
    "the queue still has tasks (%d eligible, %d delayed, %d running, %d dead): let them run, delete the dead",
    queue.eligible, queue.delayed, queue.running, dead))
else
  redis.call("DEL", queue_of .. name)
  redis.call("SREM", queues_of .. queue.environment.name, name)
  queue.limits_changed, queue.most = true, queue.environment.limit or math.huge
end
return finish(result)
