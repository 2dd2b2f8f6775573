-- dead_letters: reads a page of the dead tasks of a queue, oldest first. Writes nothing.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   from_ms: time of death of the last task of the previous page; "-inf" for the first page
-- ARGV[5]   after_id: id of that task; "" for the first page
-- ARGV[6]   limit: maximum number of tasks
-- ARGV[7]   max_bytes: the page ends when its payloads reach this size
-- Returns   {1 if more tasks follow, else 0; id, record and payload of each task in turn}
-- Errors    UNKNOWNQUEUE
-- Complexity  O(log n + limit + tasks that died in the same ms)
--- @include "shard"
local name, from_ms, after_id, limit, max_bytes = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

if redis.call("EXISTS", queue_of .. name) == 0 then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local page, offset, bytes = { 0 }, 0, 0
while page[1] == 0 do
  local members = redis.call("ZRANGE", dead_of .. name, from_ms, "+inf", "BYSCORE", "LIMIT", offset, limit, "WITHSCORES")
  if #members == 0 then
    break
  end
  for index = 1, #members, 2 do
    local id = members[index]
    local on_earlier_page = tonumber(members[index + 1]) == tonumber(from_ms) and id <= after_id
    local record = not on_earlier_page and redis.call("HGET", tasks_key, id)
    if record and (#page > 3 * limit or bytes >= max_bytes) then
      page[1] = 1
      break
    elseif record then
      local payload = redis.call("HGET", payloads_key, id) or ""
      page[#page + 1] = id
      page[#page + 1] = record
      page[#page + 1] = payload
      bytes = bytes + #payload
    end
  end
  offset = offset + limit
end
return page
