-- repair_queue: removes from one set of a queue the members that are not tasks in that state. Scans a page per call.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   state: selects the set
-- ARGV[5]   cursor: result of the previous call; 0 starts
-- ARGV[6]   page_size: approximate number of members to scan
-- Returns   {next cursor or 0 at the end, number of members removed}
-- Errors    none
-- Complexity  O(page_size × log n)
--- @include "all"
local name, state, cursor, page_size = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local is_sorted = state == ELIGIBLE or state == DEAD
local key = ({ eligible = eligible_of, delayed = delayed_of, running = running_of, dead = dead_of })[state] .. name
local page = redis.call(is_sorted and "ZSCAN" or "SSCAN", key, cursor, "COUNT", page_size)
local ids = {}
for index = 1, #page[2], is_sorted and 2 or 1 do
  ids[#ids + 1] = page[2][index]
end
local tasks, removed = load_tasks(ids), 0
for _, id in ipairs(ids) do
  local task = tasks[id]
  if not task or task[STATE] ~= state or task[QUEUE] ~= name then
    removed = removed + redis.call(is_sorted and "ZREM" or "SREM", key, id)
  end
end
if removed > 0 then
  load_queue(name)
end
return finish({ page[1], removed })
