-- task: a task's record, an array in MessagePack. The order of its fields is also in records.py.
local QUEUE, STATE, PRIORITY, ATTEMPTS, MAX_ATTEMPTS, ENQUEUED, ELIGIBLE_AT, EXPIRES, TTL, STARTED, DEADLINE, TOKEN, WORKER, ERROR, DEAD_AT =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
local DELAYED, ELIGIBLE, RUNNING, DEAD = "delayed", "eligible", "running", "dead"
local CHUNK = 2000 -- arguments per call; Lua's stack has room for some thousands

-- The tasks with these ids by id; those that do not exist are absent. O(ids)
local function load_tasks(ids)
  local found = {}
  for from = 1, #ids, CHUNK do
    local upto = math.min(from + CHUNK - 1, #ids)
    local records = redis.call("HMGET", tasks_key, unpack(ids, from, upto))
    for place, record in ipairs(records) do
      if record then
        found[ids[from + place - 1]] = cmsgpack.unpack(record)
      end
    end
  end
  return found
end
