-- leases: which of the items {environment, id, token, …} speak of a task that their caller holds.
local HELD, UNKNOWN, LOST = 1, 0, -1

-- Calls `held(id, task, item)` for each of them; returns one number per item, HELD, UNKNOWN or LOST.
local function with_leases(items, held)
  local ids, answers = {}, {}
  for place, item in ipairs(items) do
    ids[place] = item[2]
  end
  local tasks = load_tasks(ids)
  for place, item in ipairs(items) do
    local environment, id, token = item[1], item[2], item[3]
    local task = tasks[id]
    if not task or string.match(task[QUEUE], "^(.+)/") ~= environment then
      answers[place] = UNKNOWN
    elseif task[STATE] ~= RUNNING or task[TOKEN] ~= token then
      answers[place] = LOST
    else
      answers[place] = held(id, task, item) or HELD
      if not task[STATE] then
        tasks[id] = nil
      end
    end
  end
  return answers
end
