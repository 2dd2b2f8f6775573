-- dequeue: hand tasks to workers, within the limits, fairly.
-- ARGV[3]   requests: MessagePack, a list of {environment or "" for any, queue or "" for any of it, how many,
--           visibility in ms, worker}
-- ARGV[4]   most_bytes: a request whose payloads reach about this size gets no more, however many it asked for
-- Returns   {answers, payloads of all tasks in order…}; answers is MessagePack: {now, one list per request of
--           {id, queue, token, attempt, attempts at most, priority, enqueued at, deadline}}
-- Errors    none
-- Complexity  O(tasks × log n); a queue that is full, paused or empty is in no ring and costs nothing
--- @include "all"
local requests, most_bytes = cmsgpack.unpack(ARGV[3]), tonumber(ARGV[4])
local FIRST, RECORD_BYTES = 16, 128 -- tasks taken before their sizes are known; what a task adds to its payload

local reply = { "" }
local spare = 1000 -- how many expired tasks may be met on the way; the sweep takes the rest

local function start(queue, id, task, payload, request)
  leave(queue, id, task, true)
  -- Larger than any before, also if Redis lost what it had handed out last.
  task[TOKEN] = math.max(now_us, task[TOKEN] + 1)
  task[ATTEMPTS], task[STARTED] = task[ATTEMPTS] + 1, now
  task[DEADLINE], task[WORKER] = now + request.visibility, request.worker
  enter(queue, id, task, RUNNING)
  count(queue, "dq")
  queue.waits[#queue.waits + 1] = math.max(0, now - task[ELIGIBLE_AT])
  request.taken[#request.taken + 1] = { id, queue.name, task[TOKEN], task[ATTEMPTS], task[MAX_ATTEMPTS],
    task[PRIORITY], task[ENQUEUED], task[DEADLINE] }
  request.bytes = request.bytes + #payload + RECORD_BYTES
  reply[#reply + 1] = payload
end

-- How many to take in one go, by the size of those that were taken.
local function next_few(request)
  local usual = request.bytes / #request.taken
  return #request.taken == 0 and FIRST or math.ceil((most_bytes - request.bytes) / usual)
end

local function hand_out(queue, wanted, request)
  local before = #request.taken
  while spare > 0 and request.bytes < most_bytes do
    local most = math.min(wanted - (#request.taken - before), room(queue), next_few(request), CHUNK)
    local popped = most > 0 and redis.call("ZPOPMIN", eligible_of .. queue.name, most) or {}
    if #popped == 0 then
      break
    end
    local ids = {}
    for place = 1, #popped, 2 do
      ids[#ids + 1] = popped[place]
    end
    local found, payloads = load_tasks(ids), redis.call("HMGET", payloads_key, unpack(ids))
    for place, id in ipairs(ids) do
      local task = found[id]
      if not task or task[STATE] ~= ELIGIBLE then
        -- Not a task's place; a repair would have removed it.
        queue.eligible, queue.environment.eligible = queue.eligible - 1, queue.environment.eligible - 1
        spare = spare - 1
      elseif task[EXPIRES] > 0 and task[EXPIRES] <= now then
        expire(queue, id, task, true)
        spare = spare - 1
      else
        start(queue, id, task, payloads[place] or "", request)
      end
    end
  end
  return #request.taken - before
end

-- One turn each, beginning with who was served longest ago; a few share what is asked for among them.
local function round_robin(ring, wanted, serve)
  local served = 0
  while served < wanted and spare > 0 do
    local members = redis.call("ZCARD", ring)
    if members == 0 then
      break
    end
    local name = redis.call("ZRANGE", ring, 0, 0)[1]
    local handed, goes_on = serve(name, math.ceil((wanted - served) / math.min(members, wanted - served)))
    served, turn = served + handed, turn + 1
    if goes_on then
      redis.call("ZADD", ring, "XX", turn, name)
    else
      redis.call("ZREM", ring, name)
    end
    if handed == 0 and goes_on then
      break -- ready, but held up by what is around it
    end
  end
  return served
end

local function from_environment(environment, wanted, request)
  if environment.running >= environment.most then
    return 0
  end
  return round_robin(ring_of .. environment.name, wanted, function(name, share)
    local queue = open_queue(name)
    local handed = hand_out(queue, share, request)
    return handed, queue.eligible > 0 and not queue.paused and queue.running < queue.most
  end)
end

local answers = { now }
for place, asked in ipairs(requests) do
  local environment_name, queue_name, wanted = asked[1], asked[2], asked[3]
  local request = { visibility = asked[4], worker = asked[5], taken = {}, bytes = 0 }
  if queue_name ~= "" then
    hand_out(open_queue(queue_name), wanted, request)
  elseif environment_name ~= "" then
    from_environment(open_environment(environment_name), wanted, request)
  else
    round_robin(ready_key, wanted, function(name, share)
      local environment = open_environment(name)
      local handed = from_environment(environment, share, request)
      local ready = redis.call("EXISTS", ring_of .. name) == 1 and environment.running < environment.most
      return handed, ready
    end)
  end
  answers[place + 1] = request.taken
end
reply[1] = cmsgpack.pack(answers)
return finish(reply)
