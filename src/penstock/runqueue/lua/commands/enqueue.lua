-- enqueue: adds tasks to queues.
-- KEYS      those of include/shard.lua
-- ARGV[3]   tasks: MessagePack, a list of {queue, id, priority, delay in ms, time to live in ms or 0,
--           maximum attempts, idempotency key or ""}
-- ARGV[4]   idempotency_ms: how many ms an idempotency key is remembered
-- ARGV[5..] payloads, one per task
-- Returns   one id per task: its own, or the id of the first task with the same idempotency key
-- Errors    none
-- Complexity  O(tasks × log n)
--- @include "all"
local tasks, idempotency_ms = cmsgpack.unpack(ARGV[3]), ARGV[4]
local FIRST_PAYLOAD = 5

local ids = {}
for index, new_task in ipairs(tasks) do
  local name, id, priority, delay, ttl, max_attempts, key = unpack(new_task)
  local existing_id = false
  if key ~= "" then
    local key_name = idempotency_of .. name .. "/" .. key
    existing_id = redis.call("GET", key_name)
    if not existing_id then
      redis.call("SET", key_name, id, "PX", idempotency_ms)
    end
  end
  ids[index] = existing_id or id
  if not existing_id then
    local queue = load_queue(name)
    create_queue(queue)
    defer_write("HSET", payloads_key, id, ARGV[FIRST_PAYLOAD + index - 1])
    local expires = ttl > 0 and now + ttl or 0
    local task = { name, "", priority, 0, max_attempts, now, now, expires, ttl, 0, 0, 0, "", "", 0 }
    schedule(queue, id, task, now + delay)
    count_event(queue, "eq")
  end
end
return finish(ids)
