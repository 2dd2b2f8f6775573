-- share_environment: the durable queues' part of an environment's gauges goes in, the run queues' part comes out.
-- ARGV[3]   environment
-- ARGV[4]   depth: messages waiting in durable queues
-- ARGV[5]   running: messages of durable queues being worked on
-- Returns   {eligible, running} of the run queues
-- Errors    none
-- Complexity  O(1)
--- @include "shard"
local name, depth, running = ARGV[3], ARGV[4], ARGV[5]

redis.call("HSET", environment_of .. name, "other_depth", depth, "other_running", running)
local found = redis.call("HMGET", environment_of .. name, "eligible", "running")
return { tonumber(found[1]) or 0, tonumber(found[2]) or 0 }
