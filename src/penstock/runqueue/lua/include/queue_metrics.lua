-- queue_metrics: a queue's event: what this script moved, and how full the queue and its environment are now.
local SAMPLES = 500 -- per event; more are split, so that no entry grows without bound

local function name_parts(name)
  local organization, project, environment, queue = string.match(name, "^([^/]*)/([^/]*)/([^/]*)/(.*)$")
  local function plain(text)
    return (string.gsub(text, "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
  end
  if string.find(name, "%", 1, true) then
    return plain(organization), plain(project), plain(environment), plain(queue)
  end
  return organization, project, environment, queue
end

local function emit_queue(queue)
  if emit_length == "0" then
    return
  end
  local environment = queue.environment
  local organization, project, environment_name, queue_name = name_parts(queue.name)
  local oldest = queue.eligible > 0 and oldest_eligible(queue) or now
  local fields = {
    "org", organization, "proj", project, "env", environment_name, "queue", queue_name,
    "ql", queue.eligible, "cc", queue.running, "cl", queue.most < math.huge and queue.most or 0,
    "age", math.max(0, now - oldest), "eql", environment.eligible + environment.other_depth,
    "ecc", environment.running + environment.other_running, "ecl", environment.limit and environment.most or 0,
  }
  local function count(wire, amount)
    if amount > 0 then
      fields[#fields + 1] = wire
      fields[#fields + 1] = amount
    end
  end
  count("eq", queue.enqueued)
  count("dq", queue.dequeued)
  count("ak", queue.acked)
  count("nk", queue.nacked)
  count("dl", queue.dead)
  count("ex", queue.expired)
  for from = 1, math.max(1, #queue.waits, #queue.runs), SAMPLES do
    for wire, samples in pairs({ wt = queue.waits, rt = queue.runs }) do
      if samples[from] then
        fields[#fields + 1] = wire
        fields[#fields + 1] = table.concat(samples, ",", from, math.min(from + SAMPLES - 1, #samples))
      end
    end
    emit(stream_key, emit_length, fields)
    fields = { "org", organization, "proj", project, "env", environment_name, "queue", queue_name }
  end
end
