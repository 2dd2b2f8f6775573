-- nack: attempts failed, or tasks come back untouched.
-- ARGV[3]   leases: MessagePack, a list of {environment, id, token, what ("retry", "bury" or "give back"),
--           delay in ms or -1 for backoff, jitter from 0 to 1, error}
-- Returns   per lease the ms at which it will be eligible, 3: it is already, 2: it is dead, 0: no such task,
--           -1: the lease is lost
-- Errors    none
-- Complexity  O(leases × log n)
--- @include "all"
--- @include "leases"
local leases = cmsgpack.unpack(ARGV[3])
local BURIED, AT_ONCE = 2, 3

return finish(with_leases(leases, function(id, task, lease)
  local queue = open_queue(task[QUEUE])
  local what, delay, jitter, reason = lease[4], lease[5], lease[6], lease[7]
  if what == "give back" then
    leave(queue, id, task)
    task[ATTEMPTS], task[WORKER] = task[ATTEMPTS] - 1, ""
    make_eligible(queue, id, task, task[ELIGIBLE_AT])
  else
    queue.runs[#queue.runs + 1] = math.max(0, now - task[STARTED])
    fail(queue, id, task, reason, delay >= 0 and delay or nil, jitter, what == "retry")
  end
  if task[STATE] == DEAD then
    return BURIED
  end
  return task[STATE] == ELIGIBLE and AT_ONCE or task[ELIGIBLE_AT]
end))
