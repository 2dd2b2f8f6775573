-- redrive: makes dead tasks eligible again, with all their attempts and a new time to live.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   ids: MessagePack, a list; empty: the oldest dead tasks
-- ARGV[5]   limit: maximum number of the oldest dead tasks
-- ARGV[6]   until_ms: of the oldest, only those that died by then; "+inf" for all
-- Returns   per task 1: redriven, 0: not a dead task of this queue
-- Errors    UNKNOWNQUEUE
-- Complexity  O(ids × log n)
--- @include "all"
--- @include "dead_tasks"
local name, ids, limit, until_ms = ARGV[3], cmsgpack.unpack(ARGV[4]), ARGV[5], ARGV[6]

return finish(for_each_dead_task(name, ids, limit, until_ms, function(queue, id, task)
  leave_state(queue, id, task)
  task[ATTEMPTS], task[DEAD_AT] = 0, 0
  task[EXPIRES] = task[TTL] > 0 and now + task[TTL] or 0
  schedule(queue, id, task, now)
end))
