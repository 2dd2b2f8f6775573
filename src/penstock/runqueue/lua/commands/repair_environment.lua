-- repair_environment: recomputes the counts of an environment from its queues, and puts its queues into their rings.
-- KEYS      those of include/shard.lua
-- ARGV[3]   environment
-- Returns   1 if a count was wrong, else 0
-- Errors    none
-- Complexity  O(queues of the environment × log n)
--- @include "all"
local name = ARGV[3]

local environment = load_environment(name)
local running, eligible, delayed = 0, 0, 0
for _, queue_name in ipairs(redis.call("SMEMBERS", queues_of .. name)) do
  local queue = load_queue(queue_name)
  running, eligible, delayed = running + queue.running, eligible + queue.eligible, delayed + queue.delayed
end
local is_wrong = running ~= environment.running or eligible ~= environment.eligible or delayed ~= environment.delayed
environment.running, environment.eligible, environment.delayed = running, eligible, delayed
if not is_wrong then
  emit_length = "0" -- the gauges are unchanged: emit nothing
end
return finish(is_wrong and 1 or 0)
