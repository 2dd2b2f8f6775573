-- repair_queue: a stretch of one of a queue's sets holds only tasks in that state.
-- ARGV[3]   queue
-- ARGV[4]   state: which set
-- ARGV[5]   cursor: where to go on; 0 begins
-- ARGV[6]   count: about how many members
-- Returns   {cursor, 0 at the end; how many were removed}
-- Errors    none
-- Complexity  O(count × log n)
--- @include "all"
local name, state, cursor, count = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local sorted = state == ELIGIBLE or state == DEAD
local key = ({ eligible = eligible_of, delayed = delayed_of, running = running_of, dead = dead_of })[state] .. name
local page = redis.call(sorted and "ZSCAN" or "SSCAN", key, cursor, "COUNT", count)
local ids = {}
for place = 1, #page[2], sorted and 2 or 1 do
  ids[#ids + 1] = page[2][place]
end
local tasks, removed = load_tasks(ids), 0
for _, id in ipairs(ids) do
  local task = tasks[id]
  if not task or task[STATE] ~= state or task[QUEUE] ~= name then
    removed = removed + redis.call(sorted and "ZREM" or "SREM", key, id)
  end
end
if removed > 0 then
  open_queue(name)
end
return finish({ page[1], removed })
