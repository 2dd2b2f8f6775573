-- heartbeat: extends the leases of running tasks. No gauge changes, so no event is emitted.
-- KEYS      those of include/shard.lua
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token, visibility in ms}
-- Returns   per lease the new deadline in ms, 0: unknown task, -1: lease lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])

return finish(for_each_lease(leases, function(id, task, lease)
  task[DEADLINE] = now + lease[4]
  set_timer(id, task[DEADLINE])
  defer_write("HSET", tasks_key, id, cmsgpack.pack(task))
  return task[DEADLINE]
end))
