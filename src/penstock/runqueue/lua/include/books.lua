-- books: what is known of the environments and queues this script touches, read once, kept current.
local BAND = 4398046511104 -- 2^42: a priority's share of the scores, with room for times until the year 2109
local environments, queues, opened = {}, {}, {}
local turn = now_us -- the place at the end of a ring; later ones are served later

local function open_environment(name)
  local environment = environments[name]
  if not environment then
    local found = redis.call("HMGET", environment_of .. name, "limit", "burst", "running", "eligible", "delayed",
      "other_depth", "other_running", "other_oldest")
    local limit, burst = tonumber(found[1]), tonumber(found[2]) or 1
    environment = {
      name = name, limit = limit, burst = burst, most = limit and math.floor(limit * burst) or math.huge,
      running = tonumber(found[3]) or 0, eligible = tonumber(found[4]) or 0, delayed = tonumber(found[5]) or 0,
      other_depth = tonumber(found[6]) or 0, other_running = tonumber(found[7]) or 0,
      other_oldest = tonumber(found[8]) or math.huge,
    }
    environment.was_full = environment.running >= environment.most
    environment.read = { environment.running, environment.eligible, environment.delayed }
    environments[name] = environment
  end
  return environment
end

-- One queue alone never uses an environment's burst.
local function open_queue(name)
  local queue = queues[name]
  if not queue then
    local environment = open_environment(string.match(name, "^(.+)/"))
    local found = redis.call("HMGET", queue_of .. name, "made", "limit", "paused", "priorities")
    local limit = tonumber(found[2])
    queue = {
      name = name, environment = environment, made = found[1], limit = limit, paused = found[3] == "1",
      most = math.min(limit or math.huge, environment.limit or math.huge), priorities = found[4] or "",
      eligible = redis.call("ZCARD", eligible_of .. name), running = redis.call("SCARD", running_of .. name),
      delayed = redis.call("SCARD", delayed_of .. name),
      counts = {}, waits = {}, runs = {},
    }
    queues[name] = queue
    opened[#opened + 1] = queue
  end
  return queue
end

local function make_queue(queue)
  if not queue.made then
    queue.made = now
    redis.call("HSET", queue_of .. queue.name, "made", now)
    redis.call("SADD", queues_of .. queue.environment.name, queue.name)
    redis.call("SADD", environments_key, queue.environment.name)
  end
end

-- One more of what the metric calls by this short name.
local function count(queue, wire)
  queue.counts[wire] = (queue.counts[wire] or 0) + 1
end

-- How many more of its tasks may start now.
local function room(queue)
  if queue.paused then
    return 0
  end
  local environment = queue.environment
  return math.max(0, math.min(queue.most - queue.running, environment.most - environment.running))
end

-- When the oldest eligible task became eligible, or nil. O(priorities in use × log n)
local function oldest_eligible(queue)
  local oldest
  if #queue.priorities == 1 then
    local first = redis.call("ZRANGE", eligible_of .. queue.name, 0, 0, "WITHSCORES")[2]
    return first and tonumber(first) - (9 - queue.priorities) * BAND
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

-- The same for an environment, with what its durable queues said last; math.huge where nothing waits. O(log n)
local function oldest_of_environment(environment)
  local first = redis.call("ZRANGE", oldest_of .. environment.name, 0, 0, "WITHSCORES")[2]
  return math.min(first and tonumber(first) or math.huge, environment.other_oldest)
end
