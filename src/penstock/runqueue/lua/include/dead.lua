-- dead: the dead tasks of a queue, by id or the oldest ones.
-- Calls `found(queue, id, task)` for each; returns one number per id, 1 or 0, or an error.
local function with_dead(name, ids, most, until_ms, found)
  local queue = open_queue(name)
  if not queue.made then
    return redis.error_reply("UNKNOWNQUEUE there is no such queue")
  end
  if #ids == 0 then
    ids = redis.call("ZRANGE", dead_of .. name, "-inf", until_ms, "BYSCORE", "LIMIT", 0, most)
  end
  local tasks, answers = load_tasks(ids), {}
  for place, id in ipairs(ids) do
    local task = tasks[id]
    if task and task[STATE] == DEAD and task[QUEUE] == name then
      found(queue, id, task)
      tasks[id], answers[place] = nil, 1
    else
      answers[place] = 0
    end
  end
  return answers
end
