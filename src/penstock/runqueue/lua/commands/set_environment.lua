-- set_environment: an environment's limit and burst.
-- ARGV[3]   environment
-- ARGV[4]   limit: "" for none
-- ARGV[5]   burst: how many times the limit all queues together may use
-- Returns   1
-- Errors    none
-- Complexity  O(queues of the environment × log n): each may have become ready, or full
--- @include "all"
local name, limit, burst = ARGV[3], ARGV[4], ARGV[5]

local environment = open_environment(name)
if limit == "" then
  redis.call("HDEL", environment_of .. name, "limit", "burst")
else
  redis.call("HSET", environment_of .. name, "limit", limit, "burst", burst)
end
redis.call("SADD", environments_key, name)
environment.limit = tonumber(limit)
environment.most = environment.limit and math.floor(environment.limit * tonumber(burst)) or math.huge
for _, queue_name in ipairs(redis.call("SMEMBERS", queues_of .. name)) do
  open_queue(queue_name).limits_changed = true
end
return finish(1)
