-- delete_environment: deletes the limits and counts of an environment without queues.
-- KEYS      those of include/shard.lua
-- ARGV[3]   environment
-- Returns   1
-- Errors    none
-- Complexity  O(log n)
--- @include "shard"
local name = ARGV[3]

redis.call("DEL", environment_of .. name, queues_of .. name, ring_of .. name, oldest_of .. name)
redis.call("SREM", environments_key, name)
redis.call("ZREM", ready_key, name)
return 1
