-- sweep: what is due: delayed tasks become eligible, tasks of vanished workers are tried again or die, tasks that
-- outlived their time to live go.
-- ARGV[3]   most: how many in one call
-- Returns   {became eligible, released, died, expired, ms until something is due again or -1}
-- Errors    none
-- Complexity  O(due × log n)
--- @include "all"
local most = ARGV[3]

local promoted, released, died, expired = 0, 0, 0, 0
local due = redis.call("ZRANGE", timers_key, "-inf", now, "BYSCORE", "LIMIT", 0, most)
local tasks = load_tasks(due)
for _, id in ipairs(due) do
  local task = tasks[id]
  local state = task and task[STATE]
  if not task or state == DEAD then
    set_timer(id, nil)
  elseif state == RUNNING then
    local queue = open_queue(task[QUEUE])
    local worker = task[WORKER] ~= "" and task[WORKER] or "a worker"
    fail(queue, id, task, worker .. " did not answer in time", 0, 0, true)
    if task[STATE] == DEAD then
      died = died + 1
    else
      released = released + 1
    end
  elseif task[EXPIRES] > 0 and task[EXPIRES] <= now then
    expire(open_queue(task[QUEUE]), id, task)
    expired = expired + 1
  elseif state == DELAYED then
    local queue = open_queue(task[QUEUE])
    leave(queue, id, task)
    enter(queue, id, task, ELIGIBLE)
    promoted = promoted + 1
  else
    set_timer(id, nil)
  end
end
finish()
local next_due = redis.call("ZRANGE", timers_key, 0, 0, "WITHSCORES")[2]
return { promoted, released, died, expired, next_due and math.max(0, tonumber(next_due) - now) or -1 }
