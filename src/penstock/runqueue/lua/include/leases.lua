-- leases: checks items {environment, id, token, …} against the tasks that run under these tokens.
local HELD, UNKNOWN, LOST = 1, 0, -1

-- Calls `apply(id, task, item)` for each item whose lease is valid. Returns one number per item: the result of
-- `apply` or HELD, UNKNOWN or LOST.
local function for_each_lease(items, apply)
  local ids, results = {}, {}
  for index, item in ipairs(items) do
    ids[index] = item[2]
  end
  local tasks = load_tasks(ids)
  for index, item in ipairs(items) do
    local environment, id, token = item[1], item[2], item[3]
    local task = tasks[id]
    if not task or string.match(task[QUEUE], "^(.+)/") ~= environment then
      results[index] = UNKNOWN
    elseif task[STATE] ~= RUNNING or task[TOKEN] ~= token then
      results[index] = LOST
    else
      results[index] = apply(id, task, item) or HELD
      if not task[STATE] then
        tasks[id] = nil
      end
    end
  end
  return results
end
