-- ack: completes tasks and deletes them.
-- KEYS      those of include/shard.lua
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token}
-- Returns   per lease 1: acked, 0: unknown task, -1: lease lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])

return finish(for_each_lease(leases, function(id, task)
  local queue = load_queue(task[QUEUE])
  leave_state(queue, id, task)
  delete_task(id)
  task[STATE] = nil
  count_event(queue, "ak")
  queue.run_ms[#queue.run_ms + 1] = math.max(0, now - task[STARTED])
end))
