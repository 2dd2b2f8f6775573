-- exchange_environment_gauges: stores the gauges of an environment's durable queues, returns those of its run queues.
-- KEYS      those of include/shard.lua
-- ARGV[3]   environment
-- ARGV[4]   depth: messages that wait in durable queues
-- ARGV[5]   running: messages of durable queues that are leased
-- ARGV[6]   oldest: ms since which the oldest of them waits; "" if none waits
-- Returns   {eligible, running, ms since which the oldest task waits or 0} of the run queues
-- Errors    none
-- Complexity  O(1)
--- @include "shard"
local name, depth, running, oldest = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

redis.call("HSET", environment_of .. name, "other_depth", depth, "other_running", running, "other_oldest", oldest)
local counts = redis.call("HMGET", environment_of .. name, "eligible", "running")
local oldest_task = redis.call("ZRANGE", oldest_of .. name, 0, 0, "WITHSCORES")[2]
return { tonumber(counts[1]) or 0, tonumber(counts[2]) or 0, tonumber(oldest_task) or 0 }
