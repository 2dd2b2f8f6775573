-- inspect: reads the state of queues and of their environment. Writes nothing.
-- KEYS      those of include/shard.lua
-- ARGV[3]   environment
-- ARGV[4]   names: MessagePack, a list of queues; the result omits those that do not exist
-- ARGV[5]   wires: MessagePack, the short names of the counters whose totals to return
-- Returns   MessagePack: {number of queues, eligible, delayed, running, limit or -1, burst, age of the oldest in ms,
--           per queue {name, eligible, delayed, running, dead, limit or -1, paused, age of the oldest in ms, totals}}
-- Errors    none
-- Complexity  O(names × log n)
--- @include "shard"
--- @include "task"
--- @include "state_cache"
local environment_name, names, wires = ARGV[3], cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])

local environment = load_environment(environment_name)
local queue_count = redis.call("SCARD", queues_of .. environment_name)
local result = { queue_count, environment.eligible, environment.delayed, environment.running, environment.limit or -1,
  environment.burst, 0 }
local oldest_task = redis.call("ZRANGE", oldest_of .. environment_name, 0, 0, "WITHSCORES")[2]
if oldest_task then
  result[#result] = math.max(0, now - tonumber(oldest_task))
end
for _, name in ipairs(names) do
  local queue = load_queue(name)
  if queue.created_ms then
    local oldest = oldest_eligible(queue) or now
    local totals = redis.call("HMGET", queue_of .. name, unpack(wires))
    for index, total in ipairs(totals) do
      totals[index] = tonumber(total) or 0
    end
    result[#result + 1] = { name, queue.eligible, queue.delayed, queue.running, redis.call("ZCARD", dead_of .. name),
      queue.limit or -1, queue.paused, math.max(0, now - oldest), totals }
  end
end
return cmsgpack.pack(result)
