-- dead_letters: a page of a queue's dead tasks, oldest first. Reads only.
-- ARGV[3]   queue
-- ARGV[4]   from_ms: when the last one of the page before died; "-inf" for the first page
-- ARGV[5]   after_id: that one's id; "" for the first page
-- ARGV[6]   most: how many
-- Returns   id, record and payload of each in turn
-- Errors    UNKNOWNQUEUE
-- Complexity  O(log n + most + tasks that died in the same ms)
--- @include "shard"
local name, from_ms, after_id, most = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

if redis.call("EXISTS", queue_of .. name) == 0 then
  return redis.error_reply("UNKNOWNQUEUE there is no such queue")
end
local page, offset = {}, 0
while #page < 3 * most do
  local found = redis.call("ZRANGE", dead_of .. name, from_ms, "+inf", "BYSCORE", "LIMIT", offset, most, "WITHSCORES")
  if #found == 0 then
    break
  end
  for place = 1, #found, 2 do
    local id = found[place]
    local passed = tonumber(found[place + 1]) == tonumber(from_ms) and id <= after_id
    local record = not passed and #page < 3 * most and redis.call("HGET", tasks_key, id)
    if record then
      page[#page + 1] = id
      page[#page + 1] = record
      page[#page + 1] = redis.call("HGET", payloads_key, id) or ""
    end
  end
  offset = offset + most
end
return page
