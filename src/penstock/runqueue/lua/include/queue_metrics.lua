-- queue_metrics: a queue's event: what this script moved, and how full the queue and its environment are now.
local SAMPLES = 500 -- per event; more are split, so that no entry grows without bound

local function unescaped(text)
  return (string.gsub(text, "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- A part of the samples as the event has them. One alone, as most calls have, needs no joining.
local function samples(numbers, from)
  return #numbers == 1 and numbers[1] or table.concat(numbers, ",", from, math.min(from + SAMPLES - 1, #numbers))
end

local function emit_queue(queue)
  if emit_length == "0" or not queue.made then -- of a queue that nobody has made there is nothing to tell
    return
  end
  local environment, waits, runs = queue.environment, queue.waits, queue.runs
  local organization, project, place, name = string.match(queue.name, "^([^/]*)/([^/]*)/([^/]*)/(.*)$")
  if string.find(queue.name, "%", 1, true) then
    organization, project, place, name =
      unescaped(organization), unescaped(project), unescaped(place), unescaped(name)
  end
  -- All gauges in every event: an age is carried forward from the moment that any of them was last seen.
  local fields = {
    "org", organization, "proj", project, "env", place, "queue", name, "ql", queue.eligible, "cc", queue.running,
    "age", math.max(0, now - (queue.oldest or now)), "eage", math.max(0, now - oldest_of_environment(environment)),
    "eql", environment.eligible + environment.other_depth, "ecc", environment.running + environment.other_running,
    "dy", queue.delayed, "edy", environment.delayed,
  }
  local size = 24
  for wire, amount in pairs(queue.counts) do
    fields[size + 1], fields[size + 2] = wire, amount
    size = size + 2
  end
  -- A limit of 0 says that there is none: told when one is taken away, and not again and again.
  if queue.most < math.huge or queue.limits_changed then
    fields[size + 1], fields[size + 2] = "cl", queue.most < math.huge and queue.most or 0
    fields[size + 3], fields[size + 4] = "ecl", environment.limit and environment.most or 0
    size = size + 4
  end
  for from = 1, math.max(1, #waits, #runs), SAMPLES do
    if waits[from] then
      fields[size + 1], fields[size + 2] = "wt", samples(waits, from)
      size = size + 2
    end
    if runs[from] then
      fields[size + 1], fields[size + 2] = "rt", samples(runs, from)
      size = size + 2
    end
    emit(stream_key, emit_length, fields, now_us % 16 == 0)
    fields, size = { "org", organization, "proj", project, "env", place, "queue", name }, 8
  end
end
