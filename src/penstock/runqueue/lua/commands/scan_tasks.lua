-- scan_tasks: reads some tasks of a queue in one state, in no order. A task that keeps its state during a complete
-- iteration is returned at least once. Writes nothing.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   state: "eligible", "delayed" or "running"
-- ARGV[5]   cursor: "0" to start an iteration, else the cursor of the last reply
-- ARGV[6]   count: about how many tasks to return
-- Returns   {cursor of the next call, "0" at the end; id, record and payload of each task in turn}
-- Errors    UNKNOWNQUEUE
-- Complexity  O(count)
--- @include "shard"
local name, state, cursor, count = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if redis.call("EXISTS", queue_of .. name) == 0 then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local is_sorted = state == "eligible"
local key = (is_sorted and eligible_of or state == "delayed" and delayed_of or running_of) .. name
local scan = redis.call(is_sorted and "ZSCAN" or "SSCAN", key, cursor, "COUNT", count)
local page = { scan[1] }
for index = 1, #scan[2], is_sorted and 2 or 1 do
  local id = scan[2][index]
  local record = redis.call("HGET", tasks_key, id)
  if record then
    page[#page + 1] = id
    page[#page + 1] = record
    page[#page + 1] = redis.call("HGET", payloads_key, id) or ""
  end
end
return page
