-- task: the record of a task, a MessagePack array. task_records.py lists the same fields in the same order.
-- CALLER is the number of the access token of the last lease, 0 without one; a task that never ran has none.
local QUEUE, STATE, PRIORITY, ATTEMPTS, MAX_ATTEMPTS, ENQUEUED, ELIGIBLE_AT, EXPIRES, TTL, STARTED, DEADLINE, TOKEN, WORKER, ERROR, DEAD_AT, CALLER =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
local DELAYED, ELIGIBLE, RUNNING, DEAD = "delayed", "eligible", "running", "dead"
local CHUNK = 2000 -- arguments per call; Lua's stack holds a few thousand

-- Returns the tasks with these ids, keyed by id; unknown ids are absent. O(ids)
local function load_tasks(ids)
  local tasks = {}
  for from = 1, #ids, CHUNK do
    local upto = math.min(from + CHUNK - 1, #ids)
    local records = redis.call("HMGET", tasks_key, unpack(ids, from, upto))
    for index, record in ipairs(records) do
      if record then
        tasks[ids[from + index - 1]] = cmsgpack.unpack(record)
      end
    end
  end
  return tasks
end
