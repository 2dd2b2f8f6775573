-- dead_tasks: selects dead tasks of a queue, by id or the oldest ones.
-- Calls `apply(queue, id, task)` for each. Returns one number per id: 1 if the task was dead, else 0; or an error.
local function for_each_dead_task(name, ids, limit, until_ms, apply)
  local queue = load_queue(name)
  if not queue.created_ms then
    return redis.error_reply("UNKNOWNQUEUE there is no such queue")
  end
  if #ids == 0 then
    ids = redis.call("ZRANGE", dead_of .. name, "-inf", until_ms, "BYSCORE", "LIMIT", 0, limit)
  end
  local tasks, results = load_tasks(ids), {}
  for index, id in ipairs(ids) do
    local task = tasks[id]
    if task and task[STATE] == DEAD and task[QUEUE] == name then
      apply(queue, id, task)
      tasks[id], results[index] = nil, 1
    else
      results[index] = 0
    end
  end
  return results
end
