-- share_environment: the durable queues' part of an environment's gauges goes in, the run queues' part comes out.
-- ARGV[3]   environment
-- ARGV[4]   depth: messages waiting in durable queues
-- ARGV[5]   running: messages of durable queues being worked on
-- ARGV[6]   oldest: since when the oldest of them waits, in ms; "" when none does
-- Returns   {eligible, running, since when the oldest waits or 0} of the run queues
-- Errors    none
-- Complexity  O(1)
--- @include "shard"
local name, depth, running, oldest = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

redis.call("HSET", environment_of .. name, "other_depth", depth, "other_running", running, "other_oldest", oldest)
local found = redis.call("HMGET", environment_of .. name, "eligible", "running")
local first = redis.call("ZRANGE", oldest_of .. name, 0, 0, "WITHSCORES")[2]
return { tonumber(found[1]) or 0, tonumber(found[2]) or 0, tonumber(first) or 0 }
