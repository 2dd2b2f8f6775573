-- repair_tasks: puts each task into the set of its state and gives it the timer of that state. Scans a page per call.
-- KEYS      those of include/shard.lua
-- ARGV[3]   cursor: result of the previous call; 0 starts
-- ARGV[4]   page_size: approximate number of tasks to scan
-- Returns   {next cursor or 0 at the end, number of tasks repaired}
-- Errors    none
-- Complexity  O(page_size × log n)
--- @include "all"
local cursor, page_size = ARGV[3], ARGV[4]

-- Returns whether the member was missing or had another score.
local function add_member(kind, key, id, score)
  if kind == "set" then
    return redis.call("SADD", key, id) == 1
  end
  local stored_score = redis.call("ZSCORE", key, id)
  if stored_score and tonumber(stored_score) == score then
    return false
  end
  redis.call("ZADD", key, score, id)
  return true
end

local page, repaired = redis.call("HSCAN", tasks_key, cursor, "COUNT", page_size), 0
for index = 1, #page[2], 2 do
  local id, task = page[2][index], cmsgpack.unpack(page[2][index + 1])
  local state, name, timer = task[STATE], task[QUEUE], nil
  local was_missing
  if state == ELIGIBLE then
    was_missing = add_member("sorted", eligible_of .. name, id, (9 - task[PRIORITY]) * BAND + task[ELIGIBLE_AT])
    timer = task[EXPIRES] > 0 and task[EXPIRES] or nil
  elseif state == DELAYED then
    was_missing = add_member("set", delayed_of .. name, id)
    timer = task[EXPIRES] > 0 and math.min(task[EXPIRES], task[ELIGIBLE_AT]) or task[ELIGIBLE_AT]
  elseif state == RUNNING then
    was_missing = add_member("set", running_of .. name, id)
    timer = task[DEADLINE]
  else
    was_missing = add_member("sorted", dead_of .. name, id, task[DEAD_AT])
  end
  if was_missing then
    local queue = load_queue(name) -- counts the members of the sets as they are now
    create_queue(queue)
    if state == ELIGIBLE and not string.find(queue.priorities, task[PRIORITY], 1, true) then
      queue.priorities, queue.priorities_changed = queue.priorities .. task[PRIORITY], true
    end
  end
  local timer_was_wrong = timer and add_member("sorted", timers_key, id, timer)
  if was_missing or timer_was_wrong then
    repaired = repaired + 1
  end
end
-- A queue that was loaded early counted its sets before later tasks of this page were added to them.
for _, queue in ipairs(loaded_queues) do
  queue.eligible = redis.call("ZCARD", eligible_of .. queue.name)
  queue.delayed = redis.call("SCARD", delayed_of .. queue.name)
  queue.running = redis.call("SCARD", running_of .. queue.name)
end
return finish({ page[1], repaired })
