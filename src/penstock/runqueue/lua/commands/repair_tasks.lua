-- repair_tasks: each task of a stretch is in the set and has the timer that its state asks for.
-- ARGV[3]   cursor: where to go on; 0 begins
-- ARGV[4]   count: about how many tasks
-- Returns   {cursor, 0 at the end; how many were put right}
-- Errors    none
-- Complexity  O(count × log n)
--- @include "all"
local cursor, count = ARGV[3], ARGV[4]

local function put(kind, key, id, score)
  if kind == "set" then
    return redis.call("SADD", key, id) == 1
  end
  local found = redis.call("ZSCORE", key, id)
  if found and tonumber(found) == score then
    return false
  end
  redis.call("ZADD", key, score, id)
  return true
end

local page, repaired = redis.call("HSCAN", tasks_key, cursor, "COUNT", count), 0
for place = 1, #page[2], 2 do
  local id, task = page[2][place], cmsgpack.unpack(page[2][place + 1])
  local state, name, timer = task[STATE], task[QUEUE], nil
  local wrong
  if state == ELIGIBLE then
    wrong = put("sorted", eligible_of .. name, id, (9 - task[PRIORITY]) * BAND + task[ELIGIBLE_AT])
    timer = task[EXPIRES] > 0 and task[EXPIRES] or nil
  elseif state == DELAYED then
    wrong = put("set", delayed_of .. name, id)
    timer = task[EXPIRES] > 0 and math.min(task[EXPIRES], task[ELIGIBLE_AT]) or task[ELIGIBLE_AT]
  elseif state == RUNNING then
    wrong = put("set", running_of .. name, id)
    timer = task[DEADLINE]
  else
    wrong = put("sorted", dead_of .. name, id, task[DEAD_AT])
  end
  if wrong then
    local queue = open_queue(name) -- reads the sets as they are now
    make_queue(queue)
    if state == ELIGIBLE and not string.find(queue.priorities, task[PRIORITY], 1, true) then
      queue.priorities, queue.changed = queue.priorities .. task[PRIORITY], true
    end
  end
  local wrong_timer = timer and put("sorted", timers_key, id, timer)
  if wrong or wrong_timer then
    repaired = repaired + 1
  end
end
-- A queue opened early has read its sets before later tasks were put there.
for _, queue in ipairs(opened) do
  queue.eligible = redis.call("ZCARD", eligible_of .. queue.name)
  queue.delayed = redis.call("SCARD", delayed_of .. queue.name)
  queue.running = redis.call("SCARD", running_of .. queue.name)
end
return finish({ page[1], repaired })
