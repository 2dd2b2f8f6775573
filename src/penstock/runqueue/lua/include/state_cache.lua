-- state_cache: the environments and queues that this script uses, each read once and kept current in memory.
local BAND = 4398046511104 -- 2^42: the range of scores of one priority; times fit into it until the year 2109
local environments, queues, loaded_queues = {}, {}, {}
local next_turn = now_us -- score that puts a member at the end of a ring; rings serve the lowest score first

local function load_environment(name)
  local environment = environments[name]
  if not environment then
    local values = redis.call("HMGET", environment_of .. name, "limit", "burst", "running", "eligible", "delayed",
      "other_depth", "other_running", "other_oldest")
    local limit, burst = tonumber(values[1]), tonumber(values[2]) or 1
    environment = {
      name = name, limit = limit, burst = burst, max_running = limit and math.floor(limit * burst) or math.huge,
      running = tonumber(values[3]) or 0, eligible = tonumber(values[4]) or 0, delayed = tonumber(values[5]) or 0,
      other_depth = tonumber(values[6]) or 0, other_running = tonumber(values[7]) or 0,
      other_oldest = tonumber(values[8]) or math.huge,
    }
    environment.was_full = environment.running >= environment.max_running
    environment.stored = { environment.running, environment.eligible, environment.delayed }
    environments[name] = environment
  end
  return environment
end

-- A single queue never uses the burst of its environment.
local function load_queue(name)
  local queue = queues[name]
  if not queue then
    local environment = load_environment(string.match(name, "^(.+)/"))
    local values = redis.call("HMGET", queue_of .. name, "made", "limit", "paused", "priorities")
    local limit = tonumber(values[2])
    queue = {
      name = name, environment = environment, created_ms = values[1], limit = limit, paused = values[3] == "1",
      max_running = math.min(limit or math.huge, environment.limit or math.huge), priorities = values[4] or "",
      eligible = redis.call("ZCARD", eligible_of .. name), running = redis.call("SCARD", running_of .. name),
      delayed = redis.call("SCARD", delayed_of .. name),
      counts = {}, wait_ms = {}, run_ms = {},
    }
    queues[name] = queue
    loaded_queues[#loaded_queues + 1] = queue
  end
  return queue
end

local function create_queue(queue)
  if not queue.created_ms then
    queue.created_ms = now
    redis.call("HSET", queue_of .. queue.name, "made", now)
    redis.call("SADD", queues_of .. queue.environment.name, queue.name)
    redis.call("SADD", environments_key, queue.environment.name)
  end
end

-- Adds one to a counter; `wire` is its short name in metric events.
local function count_event(queue, wire)
  queue.counts[wire] = (queue.counts[wire] or 0) + 1
end

-- Returns how many more tasks of the queue may start now.
local function free_slots(queue)
  if queue.paused then
    return 0
  end
  local environment = queue.environment
  return math.max(0, math.min(queue.max_running - queue.running, environment.max_running - environment.running))
end

-- Returns the ms at which the oldest eligible task became eligible, or nil. O(priorities in use × log n)
local function oldest_eligible(queue)
  local oldest
  if #queue.priorities == 1 then
    local score = redis.call("ZRANGE", eligible_of .. queue.name, 0, 0, "WITHSCORES")[2]
    return score and tonumber(score) - (9 - queue.priorities) * BAND
  end
  for digit in string.gmatch(queue.priorities, "%d") do
    local floor = (9 - digit) * BAND
    local first = redis.call("ZRANGE", eligible_of .. queue.name, floor, "(" .. string.format("%.0f", floor + BAND),
      "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
    if first[2] then
      oldest = math.min(oldest or math.huge, tonumber(first[2]) - floor)
    end
  end
  return oldest
end

-- Returns the same for an environment, including the last report of its durable queues; math.huge if nothing
-- waits. O(log n)
local function oldest_in_environment(environment)
  local score = redis.call("ZRANGE", oldest_of .. environment.name, 0, 0, "WITHSCORES")[2]
  return math.min(score and tonumber(score) or math.huge, environment.other_oldest)
end
