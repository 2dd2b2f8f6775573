-- look: queues and their environment as they are. Reads only.
-- ARGV[3]   environment
-- ARGV[4]   names: MessagePack, a list of queues; those that do not exist are left out
-- ARGV[5]   wires: MessagePack, the counters whose totals are wanted
-- Returns   MessagePack: {queues known, eligible, delayed, running, limit or -1, burst, age of the oldest in ms, per
--           queue {name, eligible, delayed, running, dead, limit or -1, paused, age of the oldest in ms, totals}}
-- Errors    none
-- Complexity  O(names × log n)
--- @include "shard"
--- @include "task"
--- @include "books"
local environment_name, names, wires = ARGV[3], cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])

local environment = open_environment(environment_name)
local known = redis.call("SCARD", queues_of .. environment_name)
local answer = { known, environment.eligible, environment.delayed, environment.running, environment.limit or -1,
  environment.burst, 0 }
local first = redis.call("ZRANGE", oldest_of .. environment_name, 0, 0, "WITHSCORES")[2]
if first then
  answer[#answer] = math.max(0, now - tonumber(first))
end
for _, name in ipairs(names) do
  local queue = open_queue(name)
  if queue.made then
    local oldest = oldest_eligible(queue) or now
    local totals = redis.call("HMGET", queue_of .. name, unpack(wires))
    for place, total in ipairs(totals) do
      totals[place] = tonumber(total) or 0
    end
    answer[#answer + 1] = { name, queue.eligible, queue.delayed, queue.running, redis.call("ZCARD", dead_of .. name),
      queue.limit or -1, queue.paused, math.max(0, now - oldest), totals }
  end
end
return cmsgpack.pack(answer)
