-- transitions: the state changes of a task. A task is in one set of its queue and has at most one timer.
local MIN_BACKOFF_MS, MAX_BACKOFF_MS = 1000, 3600000

local function set_timer(id, due_ms)
  if due_ms then
    defer_write("ZADD", timers_key, due_ms, id)
  else
    defer_write("ZREM", timers_key, id)
  end
end

local function enter_state(queue, id, task, state)
  local environment, name, old_state = queue.environment, queue.name, task[STATE]
  task[STATE] = state
  if state == ELIGIBLE then
    defer_write("ZADD", eligible_of .. name, (9 - task[PRIORITY]) * BAND + task[ELIGIBLE_AT], id)
    queue.eligible, environment.eligible = queue.eligible + 1, environment.eligible + 1
    if not string.find(queue.priorities, task[PRIORITY], 1, true) then
      queue.priorities, queue.priorities_changed = queue.priorities .. task[PRIORITY], true
    end
    if task[EXPIRES] > 0 then
      set_timer(id, task[EXPIRES])
    elseif old_state == DELAYED or old_state == RUNNING then
      set_timer(id, nil)
    end
  elseif state == DELAYED then
    defer_write("SADD", delayed_of .. name, id)
    queue.delayed, environment.delayed = queue.delayed + 1, environment.delayed + 1
    set_timer(id, task[EXPIRES] > 0 and math.min(task[EXPIRES], task[ELIGIBLE_AT]) or task[ELIGIBLE_AT])
  elseif state == RUNNING then
    defer_write("SADD", running_of .. name, id)
    queue.running, environment.running = queue.running + 1, environment.running + 1
    set_timer(id, task[DEADLINE])
  else
    defer_write("ZADD", dead_of .. name, now, id)
    set_timer(id, nil)
  end
  defer_write("HSET", tasks_key, id, cmsgpack.pack(task))
end

-- `is_popped`: the caller has already removed the task from its set.
local function leave_state(queue, id, task, is_popped)
  local environment, name, state = queue.environment, queue.name, task[STATE]
  if state == ELIGIBLE then
    if not is_popped then
      defer_write("ZREM", eligible_of .. name, id)
    end
    queue.eligible, environment.eligible = queue.eligible - 1, environment.eligible - 1
  elseif state == DELAYED then
    defer_write("SREM", delayed_of .. name, id)
    queue.delayed, environment.delayed = queue.delayed - 1, environment.delayed - 1
  elseif state == RUNNING then
    defer_write("SREM", running_of .. name, id)
    queue.running, environment.running = queue.running - 1, environment.running - 1
  else
    defer_write("ZREM", dead_of .. name, id)
  end
end

local function delete_task(id)
  defer_write("HDEL", tasks_key, id)
  defer_write("HDEL", payloads_key, id)
  defer_write("ZREM", timers_key, id)
end

local function expire_task(queue, id, task, is_popped)
  leave_state(queue, id, task, is_popped)
  delete_task(id)
  count_event(queue, "ex")
end

-- Makes the task eligible at `eligible_ms`: now, or by its timer.
local function schedule(queue, id, task, eligible_ms)
  task[ELIGIBLE_AT] = eligible_ms
  enter_state(queue, id, task, eligible_ms > now and DELAYED or ELIGIBLE)
end

-- Returns a running task that no worker will finish to its old position, without counting the attempt.
local function release_task(queue, id, task)
  leave_state(queue, id, task)
  task[ATTEMPTS], task[WORKER] = task[ATTEMPTS] - 1, ""
  schedule(queue, id, task, task[ELIGIBLE_AT])
end

-- Ends a failed attempt of a running task: retry it after `delay` ms, or declare it dead. A nil `delay` is
-- exponential backoff with `jitter` between 0 and 1.
local function fail_attempt(queue, id, task, reason, delay, jitter, may_retry)
  leave_state(queue, id, task)
  task[ERROR], task[WORKER], task[EXPIRES] = reason, "", 0
  if may_retry and task[ATTEMPTS] < task[MAX_ATTEMPTS] then
    if not delay then
      local max_delay = math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ^ math.min(task[ATTEMPTS] - 1, 30))
      delay = math.floor(max_delay * (0.5 + jitter / 2))
    end
    schedule(queue, id, task, now + delay)
    count_event(queue, "nk")
  else
    task[DEAD_AT] = now
    enter_state(queue, id, task, DEAD)
    count_event(queue, "dl")
  end
end
