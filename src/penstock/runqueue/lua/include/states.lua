-- states: the moves a task can make. Each is in one set of its queue and has at most one timer.
local FIRST_BACKOFF, LONGEST_BACKOFF = 1000, 3600000

local function set_timer(id, at)
  if at then
    later("ZADD", timers_key, at, id)
  else
    later("ZREM", timers_key, id)
  end
end

local function enter(queue, id, task, state)
  local environment, name, before = queue.environment, queue.name, task[STATE]
  task[STATE] = state
  if state == ELIGIBLE then
    later("ZADD", eligible_of .. name, (9 - task[PRIORITY]) * BAND + task[ELIGIBLE_AT], id)
    queue.eligible, environment.eligible = queue.eligible + 1, environment.eligible + 1
    if not string.find(queue.priorities, task[PRIORITY], 1, true) then
      queue.priorities, queue.changed = queue.priorities .. task[PRIORITY], true
    end
    if task[EXPIRES] > 0 then
      set_timer(id, task[EXPIRES])
    elseif before == DELAYED or before == RUNNING then
      set_timer(id, nil)
    end
  elseif state == DELAYED then
    later("SADD", delayed_of .. name, id)
    queue.delayed, environment.delayed = queue.delayed + 1, environment.delayed + 1
    set_timer(id, task[EXPIRES] > 0 and math.min(task[EXPIRES], task[ELIGIBLE_AT]) or task[ELIGIBLE_AT])
  elseif state == RUNNING then
    later("SADD", running_of .. name, id)
    queue.running, environment.running = queue.running + 1, environment.running + 1
    set_timer(id, task[DEADLINE])
  else
    later("ZADD", dead_of .. name, now, id)
    set_timer(id, nil)
  end
  later("HSET", tasks_key, id, cmsgpack.pack(task))
end

-- `taken`: somebody has removed it from its set already.
local function leave(queue, id, task, taken)
  local environment, name, state = queue.environment, queue.name, task[STATE]
  if state == ELIGIBLE then
    if not taken then
      later("ZREM", eligible_of .. name, id)
    end
    queue.eligible, environment.eligible = queue.eligible - 1, environment.eligible - 1
  elseif state == DELAYED then
    later("SREM", delayed_of .. name, id)
    queue.delayed, environment.delayed = queue.delayed - 1, environment.delayed - 1
  elseif state == RUNNING then
    later("SREM", running_of .. name, id)
    queue.running, environment.running = queue.running - 1, environment.running - 1
  else
    later("ZREM", dead_of .. name, id)
  end
end

local function forget(id)
  later("HDEL", tasks_key, id)
  later("HDEL", payloads_key, id)
  later("ZREM", timers_key, id)
end

local function expire(queue, id, task, taken)
  leave(queue, id, task, taken)
  forget(id)
  count(queue, "ex")
end

local function make_eligible(queue, id, task, at)
  task[ELIGIBLE_AT] = at
  enter(queue, id, task, at > now and DELAYED or ELIGIBLE)
end

-- An attempt of a running task failed. `delay` in ms, or nil for backoff with `jitter` between 0 and 1.
local function fail(queue, id, task, reason, delay, jitter, may_retry)
  leave(queue, id, task)
  task[ERROR], task[WORKER], task[EXPIRES] = reason, "", 0
  if may_retry and task[ATTEMPTS] < task[MAX_ATTEMPTS] then
    if not delay then
      local longest = math.min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ^ math.min(task[ATTEMPTS] - 1, 30))
      delay = math.floor(longest * (0.5 + jitter / 2))
    end
    make_eligible(queue, id, task, now + delay)
    count(queue, "nk")
  else
    task[DEAD_AT] = now
    enter(queue, id, task, DEAD)
    count(queue, "dl")
  end
end
