-- redrive: dead tasks become eligible, with all their attempts and their time to live anew.
-- ARGV[3]   queue
-- ARGV[4]   ids: MessagePack, a list; empty: the oldest
-- ARGV[5]   most: how many of the oldest
-- ARGV[6]   until_ms: only of those that were dead by then; "+inf" for all
-- Returns   per id (or per one of the oldest) 1: done, 0: no dead task of that queue
-- Errors    UNKNOWNQUEUE
-- Complexity  O(ids × log n)
--- @include "all"
--- @include "dead"
local name, ids, most, until_ms = ARGV[3], cmsgpack.unpack(ARGV[4]), ARGV[5], ARGV[6]

return finish(with_dead(name, ids, most, until_ms, function(queue, id, task)
  leave(queue, id, task)
  task[ATTEMPTS], task[DEAD_AT] = 0, 0
  task[EXPIRES] = task[TTL] > 0 and now + task[TTL] or 0
  make_eligible(queue, id, task, now)
end))
