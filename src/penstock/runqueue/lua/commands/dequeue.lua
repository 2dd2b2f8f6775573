-- dequeue: leases tasks to workers within the concurrency limits, in turn among queues and environments.
-- KEYS      those of include/shard.lua
-- ARGV[3]   requests: MessagePack, a list of {environment or "" for any, queue or "" for any of the environment,
--           maximum number of tasks, visibility in ms, worker, number of the access token or 0}
-- ARGV[4]   max_bytes: a request gets no further task once its payloads reach about this size
-- Returns   {results, payloads of all tasks in order…}; results is MessagePack: {now, one list per request of
--           {id, queue, token, attempt, maximum attempts, priority, enqueued at, deadline}}
-- Errors    none
-- Complexity  O(tasks × log n); a queue that is full, paused or empty is in no ring and costs nothing
--- @include "all"
local requests, max_bytes = cmsgpack.unpack(ARGV[3]), tonumber(ARGV[4])
local FIRST_CHUNK = 16 -- tasks to take before the size of their payloads is known
local RECORD_BYTES = 128 -- bytes that a task adds to its payload in the reply

local reply = { "" }
local skips_left = 1000 -- expired or missing tasks that this call still passes over; the sweep removes the others

local function start_task(queue, id, task, payload, request)
  leave_state(queue, id, task, true)
  -- The token exceeds every earlier one, also when Redis has lost the last leases.
  task[TOKEN] = math.max(now_us, task[TOKEN] + 1)
  task[ATTEMPTS], task[STARTED] = task[ATTEMPTS] + 1, now
  task[DEADLINE], task[WORKER] = now + request.visibility, request.worker
  task[CALLER] = request.access_token
  enter_state(queue, id, task, RUNNING)
  count_event(queue, "dq")
  queue.wait_ms[#queue.wait_ms + 1] = math.max(0, now - task[ELIGIBLE_AT])
  request.tasks[#request.tasks + 1] = { id, queue.name, task[TOKEN], task[ATTEMPTS], task[MAX_ATTEMPTS],
    task[PRIORITY], task[ENQUEUED], task[DEADLINE] }
  request.bytes = request.bytes + #payload + RECORD_BYTES
  reply[#reply + 1] = payload
end

-- Returns how many tasks to take in one step, estimated from the size of those taken so far.
local function next_chunk_size(request)
  local average_bytes = request.bytes / #request.tasks
  return #request.tasks == 0 and FIRST_CHUNK or math.ceil((max_bytes - request.bytes) / average_bytes)
end

-- Leases up to `limit` tasks of a queue; returns how many.
local function take_from_queue(queue, limit, request)
  local tasks_before = #request.tasks
  while skips_left > 0 and request.bytes < max_bytes do
    local size = math.min(limit - (#request.tasks - tasks_before), free_slots(queue), next_chunk_size(request), CHUNK)
    local popped = size > 0 and redis.call("ZPOPMIN", eligible_of .. queue.name, size) or {}
    if #popped == 0 then
      break
    end
    local ids = {}
    for index = 1, #popped, 2 do
      ids[#ids + 1] = popped[index]
    end
    local tasks, payloads = load_tasks(ids), redis.call("HMGET", payloads_key, unpack(ids))
    for index, id in ipairs(ids) do
      local task = tasks[id]
      if not task or task[STATE] ~= ELIGIBLE then
        -- The set holds an id without an eligible task. A repair would have removed it.
        queue.eligible, queue.environment.eligible = queue.eligible - 1, queue.environment.eligible - 1
        skips_left = skips_left - 1
      elseif task[EXPIRES] > 0 and task[EXPIRES] <= now then
        expire_task(queue, id, task, true)
        skips_left = skips_left - 1
      else
        start_task(queue, id, task, payloads[index] or "", request)
      end
    end
  end
  return #request.tasks - tasks_before
end

-- Serves the members of a ring in turn, least recently served first. When there are fewer members than tasks to
-- take, each gets an equal share. `serve(name, share)` returns how many tasks it took and whether the member stays.
local function round_robin(ring, limit, serve)
  local served = 0
  while served < limit and skips_left > 0 do
    local members = redis.call("ZCARD", ring)
    if members == 0 then
      break
    end
    local name = redis.call("ZRANGE", ring, 0, 0)[1]
    local taken, stays = serve(name, math.ceil((limit - served) / math.min(members, limit - served)))
    served, next_turn = served + taken, next_turn + 1
    if stays then
      redis.call("ZADD", ring, "XX", next_turn, name)
    else
      redis.call("ZREM", ring, name)
    end
    if taken == 0 and stays then
      break -- the member is ready, but its environment or the size of the reply stops it
    end
  end
  return served
end

local function take_from_environment(environment, limit, request)
  if environment.running >= environment.max_running then
    return 0
  end
  return round_robin(ring_of .. environment.name, limit, function(name, share)
    local queue = load_queue(name)
    local taken = take_from_queue(queue, share, request)
    return taken, queue.eligible > 0 and not queue.paused and queue.running < queue.max_running
  end)
end

local results = { now }
for index, fields in ipairs(requests) do
  local environment_name, queue_name, limit = fields[1], fields[2], fields[3]
  local request = { visibility = fields[4], worker = fields[5], access_token = fields[6], tasks = {}, bytes = 0 }
  if queue_name ~= "" then
    take_from_queue(load_queue(queue_name), limit, request)
  elseif environment_name ~= "" then
    take_from_environment(load_environment(environment_name), limit, request)
  else
    round_robin(ready_key, limit, function(name, share)
      local environment = load_environment(name)
      local taken = take_from_environment(environment, share, request)
      local is_ready = redis.call("EXISTS", ring_of .. name) == 1 and environment.running < environment.max_running
      return taken, is_ready
    end)
  end
  results[index + 1] = request.tasks
end
reply[1] = cmsgpack.pack(results)
return finish(reply)
