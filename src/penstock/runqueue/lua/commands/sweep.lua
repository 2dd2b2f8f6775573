-- sweep: handles the tasks that are due: promotes delayed tasks, retries or declares dead the tasks whose lease
-- expired, deletes the tasks whose time to live is over.
-- KEYS      those of include/shard.lua
-- ARGV[3]   limit: maximum number of tasks in one call
-- Returns   {promoted, released, dead, expired, ms until the next task is due or -1}
-- Errors    none
-- Complexity  O(due × log n)
--- @include "all"
local limit = ARGV[3]

local promoted, released, dead, expired = 0, 0, 0, 0
local due = redis.call("ZRANGE", timers_key, "-inf", now, "BYSCORE", "LIMIT", 0, limit)
local tasks = load_tasks(due)
for _, id in ipairs(due) do
  local task = tasks[id]
  local state = task and task[STATE]
  if not task or state == DEAD then
    set_timer(id, nil)
  elseif state == RUNNING then
    local queue = load_queue(task[QUEUE])
    local worker = task[WORKER] ~= "" and task[WORKER] or "a worker"
    fail_attempt(queue, id, task, worker .. " did not answer in time", 0, 0, true)
    if task[STATE] == DEAD then
      dead = dead + 1
    else
      released = released + 1
    end
  elseif task[EXPIRES] > 0 and task[EXPIRES] <= now then
    expire_task(load_queue(task[QUEUE]), id, task)
    expired = expired + 1
  elseif state == DELAYED then
    local queue = load_queue(task[QUEUE])
    leave_state(queue, id, task)
    enter_state(queue, id, task, ELIGIBLE)
    promoted = promoted + 1
  else
    set_timer(id, nil)
  end
end
finish()
local next_due = redis.call("ZRANGE", timers_key, 0, 0, "WITHSCORES")[2]
return { promoted, released, dead, expired, next_due and math.max(0, tonumber(next_due) - now) or -1 }
