-- change_waiting: deletes tasks that wait for a worker or for their delay, or declares them dead. Deleted tasks count as
-- expired.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   ids: MessagePack, a list
-- ARGV[5]   action: "delete" or "declare_dead"
-- ARGV[6]   error of the dead tasks
-- Returns   per task 1: changed, 0: not a waiting task of this queue, -1: running
-- Errors    UNKNOWNQUEUE
-- Complexity  O(ids × log n)
--- @include "all"
local name, ids, action, reason = ARGV[3], cmsgpack.unpack(ARGV[4]), ARGV[5], ARGV[6]

local queue = load_queue(name)
if not queue.created_ms then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local tasks, results = load_tasks(ids), {}
for index, id in ipairs(ids) do
  local task = tasks[id]
  results[index] = 0
  if task and task[QUEUE] == name and task[STATE] == RUNNING then
    results[index] = -1
  elseif task and task[QUEUE] == name and task[STATE] ~= DEAD then
    if action == "delete" then
      expire_task(queue, id, task)
    else
      leave_state(queue, id, task)
      task[ERROR], task[WORKER], task[EXPIRES], task[DEAD_AT] = reason, "", 0, now
      enter_state(queue, id, task, DEAD)
      count_event(queue, "dl")
    end
    tasks[id], results[index] = nil, 1
  end
end
return finish(results)
