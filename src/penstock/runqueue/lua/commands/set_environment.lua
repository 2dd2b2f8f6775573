-- set_environment: sets the concurrency limit and the burst of an environment.
-- KEYS      those of include/shard.lua
-- ARGV[3]   environment
-- ARGV[4]   limit: "" for no limit
-- ARGV[5]   burst: all queues together may run limit × burst tasks
-- Returns   1
-- Errors    none
-- Complexity  O(queues of the environment × log n): each may have become ready, or full
--- @include "all"
local name, limit, burst = ARGV[3], ARGV[4], ARGV[5]

local environment = load_environment(name)
if limit == "" then
  redis.call("HDEL", environment_of .. name, "limit", "burst")
else
  redis.call("HSET", environment_of .. name, "limit", limit, "burst", burst)
end
redis.call("SADD", environments_key, name)
environment.limit = tonumber(limit)
environment.max_running = environment.limit and math.floor(environment.limit * tonumber(burst)) or math.huge
for _, queue_name in ipairs(redis.call("SMEMBERS", queues_of .. name)) do
  load_queue(queue_name).limits_changed = true
end
return finish(1)
