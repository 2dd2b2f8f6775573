-- repair_environment: its counts are the sums over its queues, and all of its queues are in the right rings.
-- ARGV[3]   environment
-- Returns   1 if its counts were wrong, else 0
-- Errors    none
-- Complexity  O(queues of the environment × log n)
--- @include "all"
local name = ARGV[3]

local environment = open_environment(name)
local running, eligible, delayed = 0, 0, 0
for _, queue_name in ipairs(redis.call("SMEMBERS", queues_of .. name)) do
  local queue = open_queue(queue_name)
  running, eligible, delayed = running + queue.running, eligible + queue.eligible, delayed + queue.delayed
end
local wrong = running ~= environment.running or eligible ~= environment.eligible or delayed ~= environment.delayed
environment.running, environment.eligible, environment.delayed = running, eligible, delayed
if not wrong then
  emit_length = "0" -- nothing to tell
end
return finish(wrong and 1 or 0)
