-- purge: drops tasks of a queue that wait for a worker or for their delay, and counts them as expired. Running and dead
-- tasks stay.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   limit: maximum number of tasks of each state
-- Returns   the number of tasks dropped; 0: none waits
-- Errors    UNKNOWNQUEUE
-- Complexity  O(limit × log n)
--- @include "all"
local name, limit = ARGV[3], tonumber(ARGV[4])

local queue = load_queue(name)
if not queue.created_ms then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local eligible = redis.call("ZRANGE", eligible_of .. name, 0, limit - 1)
local delayed = redis.call("SRANDMEMBER", delayed_of .. name, limit)
local dropped = 0
for _, ids in ipairs({ eligible, delayed }) do
  local tasks = load_tasks(ids)
  for _, id in ipairs(ids) do
    if tasks[id] then
      expire_task(queue, id, tasks[id])
      dropped = dropped + 1
    else -- the sets hold an id without a task
      redis.call("ZREM", eligible_of .. name, id)
      redis.call("SREM", delayed_of .. name, id)
    end
  end
end
return finish(dropped)
