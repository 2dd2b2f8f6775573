-- nack: ends failed attempts, or releases tasks that no worker has started.
-- KEYS      those of include/shard.lua
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token, action ("retry", "declare_dead" or "release"),
--           delay in ms or -1 for backoff, jitter from 0 to 1, error}
-- Returns   per lease the ms at which the task becomes eligible, 3: eligible now, 2: dead, 0: unknown task,
--           -1: lease lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])
local NOW_DEAD, NOW_ELIGIBLE = 2, 3

return finish(for_each_lease(leases, function(id, task, lease)
  local queue = load_queue(task[QUEUE])
  local action, delay, jitter, reason = lease[4], lease[5], lease[6], lease[7]
  if action == "release" then
    release_task(queue, id, task)
  else
    queue.run_ms[#queue.run_ms + 1] = math.max(0, now - task[STARTED])
    fail_attempt(queue, id, task, reason, delay >= 0 and delay or nil, jitter, action == "retry")
  end
  if task[STATE] == DEAD then
    return NOW_DEAD
  end
  return task[STATE] == ELIGIBLE and NOW_ELIGIBLE or task[ELIGIBLE_AT]
end))
