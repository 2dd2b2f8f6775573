-- delete_dead: dead tasks are gone for good.
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
  forget(id)
end))
