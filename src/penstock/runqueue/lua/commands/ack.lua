-- ack: tasks are done, and gone.
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token}
-- Returns   per lease 1: done, 0: no such task, -1: the lease is lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])

return finish(with_leases(leases, function(id, task)
  local queue = open_queue(task[QUEUE])
  leave(queue, id, task)
  forget(id)
  task[STATE] = nil
  count(queue, "ak")
  queue.runs[#queue.runs + 1] = math.max(0, now - task[STARTED])
end))
