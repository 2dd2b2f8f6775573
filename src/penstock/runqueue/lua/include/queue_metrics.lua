-- queue_metrics: the metric event of a queue: the changes this script made, and the gauges of queue and environment.
local SAMPLES = 500 -- per event; a longer list is split, so that the size of an entry is bounded

local function unescape(text)
  return (string.gsub(text, "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- Returns the samples of one event, joined. Most calls have a single sample, which needs no joining.
local function join_samples(numbers, from)
  return #numbers == 1 and numbers[1] or table.concat(numbers, ",", from, math.min(from + SAMPLES - 1, #numbers))
end

local function emit_queue(queue)
  if emit_length == "0" or not queue.created_ms then -- a queue that was never created has no metrics
    return
  end
  local environment, wait_ms, run_ms = queue.environment, queue.wait_ms, queue.run_ms
  local organization, project, environment_name, name = string.match(queue.name, "^([^/]*)/([^/]*)/([^/]*)/(.*)$")
  if string.find(queue.name, "%", 1, true) then
    organization, project, environment_name, name =
      unescape(organization), unescape(project), unescape(environment_name), unescape(name)
  end
  -- Every event holds all gauges: the pipeline carries an age forward from the time of the last observed gauge.
  local fields = {
    "org", organization, "proj", project, "env", environment_name, "queue", name,
    "ql", queue.eligible, "cc", queue.running,
    "age", math.max(0, now - (queue.oldest or now)), "eage", math.max(0, now - oldest_in_environment(environment)),
    "eql", environment.eligible + environment.other_depth, "ecc", environment.running + environment.other_running,
    "dy", queue.delayed, "edy", environment.delayed,
  }
  local size = 24
  for wire, amount in pairs(queue.counts) do
    fields[size + 1], fields[size + 2] = wire, amount
    size = size + 2
  end
  -- A limit of 0 means "no limit". It is emitted when a limit is removed, not in every event.
  if queue.max_running < math.huge or queue.limits_changed then
    fields[size + 1], fields[size + 2] = "cl", queue.max_running < math.huge and queue.max_running or 0
    fields[size + 3], fields[size + 4] = "ecl", environment.limit and environment.max_running or 0
    size = size + 4
  end
  for from = 1, math.max(1, #wait_ms, #run_ms), SAMPLES do
    if wait_ms[from] then
      fields[size + 1], fields[size + 2] = "wt", join_samples(wait_ms, from)
      size = size + 2
    end
    if run_ms[from] then
      fields[size + 1], fields[size + 2] = "rt", join_samples(run_ms, from)
      size = size + 2
    end
    emit(stream_key, emit_length, fields, now_us % 16 == 0)
    fields, size = { "org", organization, "proj", project, "env", environment_name, "queue", name }, 8
  end
end
