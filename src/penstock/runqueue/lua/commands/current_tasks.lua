-- current_tasks: reads some tasks of a queue that run, wait for a worker or are delayed. Writes nothing.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   limit: maximum number of tasks of each state
-- ARGV[5]   max_bytes: the list ends when its payloads reach this size
-- Returns   {id, record and payload of each task in turn}: running ones, the next ones to run, delayed ones
-- Errors    UNKNOWNQUEUE
-- Complexity  O(log n + limit)
--- @include "shard"
local name, limit, max_bytes = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if redis.call("EXISTS", queue_of .. name) == 0 then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local list, bytes = {}, 0
local function add_tasks(ids)
  for _, id in ipairs(ids) do
    local record = bytes < max_bytes and redis.call("HGET", tasks_key, id)
    if record then
      local payload = redis.call("HGET", payloads_key, id) or ""
      list[#list + 1] = id
      list[#list + 1] = record
      list[#list + 1] = payload
      bytes = bytes + #payload
    end
  end
end
add_tasks(redis.call("SRANDMEMBER", running_of .. name, limit))
add_tasks(redis.call("ZRANGE", eligible_of .. name, 0, limit - 1))
add_tasks(redis.call("SRANDMEMBER", delayed_of .. name, limit))
return list
