-- delete_tasks: deletes tasks of a queue in any state, and the queue once it has none. For an environment that is being
-- deleted.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   limit: maximum number of tasks of each state
-- Returns   the number of tasks deleted; 0: the queue is deleted
-- Errors    none
-- Complexity  O(limit × log n)
--- @include "all"
local name, limit = ARGV[3], tonumber(ARGV[4])

local ids = {}
local function add_ids(members)
  for _, id in ipairs(members) do
    ids[#ids + 1] = id
  end
end
add_ids(redis.call("ZRANGE", eligible_of .. name, 0, limit - 1))
add_ids(redis.call("SRANDMEMBER", delayed_of .. name, limit))
add_ids(redis.call("SRANDMEMBER", running_of .. name, limit))
add_ids(redis.call("ZRANGE", dead_of .. name, 0, limit - 1))

local queue, tasks = load_queue(name), load_tasks(ids)
for _, id in ipairs(ids) do
  if tasks[id] then
    leave_state(queue, id, tasks[id])
    delete_task(id)
  else -- the sets hold an id without a task
    redis.call("ZREM", eligible_of .. name, id)
    redis.call("SREM", delayed_of .. name, id)
    redis.call("SREM", running_of .. name, id)
    redis.call("ZREM", dead_of .. name, id)
  end
end
finish()
if #ids == 0 then
  redis.call("DEL", queue_of .. name)
  redis.call("SREM", queues_of .. queue.environment.name, name)
end
return #ids
