-- shard: the keys of the shard, the current time, and the arguments that every command receives.
-- KEYS[1]  tasks: hash, id → record
-- KEYS[2]  payloads: hash, id → bytes
-- KEYS[3]  timers: sorted set, id scored by the ms at which the task's state is due to change
-- KEYS[4]  ready: sorted set, environments that can start a task, scored by their last turn
-- KEYS[5]  stream: metric stream of the shard
-- ARGV[1]  prefix: start of the keys of environments and queues
-- ARGV[2]  emit_length: approximate number of entries the stream keeps; 0: emit nothing
local tasks_key, payloads_key, timers_key = KEYS[1], KEYS[2], KEYS[3]
local ready_key, stream_key = KEYS[4], KEYS[5]
local prefix, emit_length = ARGV[1], ARGV[2]
--- @include "keys"

local time = redis.call("TIME")
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
