-- release_token: releases the tasks of a queue that run under leases taken with ended access tokens.
-- KEYS      those of include/shard.lua
-- ARGV[3]   queue
-- ARGV[4]   ids: MessagePack, a list of running tasks
-- ARGV[5]   access_tokens: MessagePack, a list of the numbers of the tokens
-- Returns   the number of tasks released
-- Errors    none
-- Complexity  O(ids × log n)
--- @include "all"
local name, ids, access_tokens = ARGV[3], cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])

local has_ended = {}
for _, number in ipairs(access_tokens) do
  has_ended[number] = true
end
local released = 0
for id, task in pairs(load_tasks(ids)) do
  if task[STATE] == RUNNING and task[QUEUE] == name and has_ended[task[CALLER]] then
    release_task(load_queue(name), id, task)
    released = released + 1
  end
end
return finish(released)
