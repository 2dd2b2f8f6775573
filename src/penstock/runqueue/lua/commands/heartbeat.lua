-- heartbeat: tasks are held longer. No gauge changes, so there is nothing to emit.
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token, visibility in ms}
-- Returns   per lease the new deadline in ms, 0: no such task, -1: the lease is lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])

return finish(with_leases(leases, function(id, task, lease)
  task[DEADLINE] = now + lease[4]
  set_timer(id, task[DEADLINE])
  later("HSET", tasks_key, id, cmsgpack.pack(task))
  return task[DEADLINE]
end))
