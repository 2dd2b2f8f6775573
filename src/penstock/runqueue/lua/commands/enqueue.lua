-- enqueue: add tasks to queues.
-- ARGV[3]   tasks: MessagePack, a list of {queue, id, priority, delay in ms, time to live in ms or 0,
--           attempts at most, idempotency key or ""}
-- ARGV[4]   key_life: for how many ms an idempotency key is remembered
-- ARGV[5..] payloads, one per task
-- Returns   one id per task: its own, or that of the task which came first with its idempotency key
-- Errors    none
-- Complexity  O(tasks × log n)
--- @include "all"
local tasks, key_life = cmsgpack.unpack(ARGV[3]), ARGV[4]
local FIRST_PAYLOAD = 5

local ids = {}
for place, new in ipairs(tasks) do
  local name, id, priority, delay, ttl, max_attempts, key = unpack(new)
  local known = false
  if key ~= "" then
    local key_name = idempotency_of .. name .. "/" .. key
    known = redis.call("GET", key_name)
    if not known then
      redis.call("SET", key_name, id, "PX", key_life)
    end
  end
  ids[place] = known or id
  if not known then
    local queue = open_queue(name)
    make_queue(queue)
    later("HSET", payloads_key, id, ARGV[FIRST_PAYLOAD + place - 1])
    local expires = ttl > 0 and now + ttl or 0
    local task = { name, "", priority, 0, max_attempts, now, now, expires, ttl, 0, 0, 0, "", "", 0 }
    make_eligible(queue, id, task, now + delay)
    count(queue, "eq")
  end
end
return finish(ids)
