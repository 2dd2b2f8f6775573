-- finish: writes what was gathered, keeps the totals and the rings of ready queues, wakes who waits, emits. Before
-- every return.
local function finish(result)
  write_all()
  for _, queue in ipairs(opened) do
    local environment, name = queue.environment, queue.name
    if queue.eligible == 0 and queue.priorities ~= "" then
      queue.priorities, queue.changed = "", true
    end
    if queue.changed then
      redis.call("HSET", queue_of .. name, "priorities", queue.priorities)
    end
    if queue.made then
      for wire, amount in pairs(queue.counts) do
        redis.call("HINCRBY", queue_of .. name, wire, amount)
      end
    end
    queue.oldest = queue.eligible > 0 and oldest_eligible(queue)
    if queue.oldest then
      redis.call("ZADD", oldest_of .. environment.name, queue.oldest, name)
    else
      redis.call("ZREM", oldest_of .. environment.name, name)
    end
    -- A full environment keeps its ready queues in its ring, and itself leaves the shard's.
    if queue.eligible > 0 and not queue.paused and queue.running < queue.most then
      environment.has_ready = true
      if redis.call("ZADD", ring_of .. environment.name, "NX", turn, name) == 1 and not environment.was_full then
        redis.call("PUBLISH", wake_channel, name)
      end
    else
      redis.call("ZREM", ring_of .. environment.name, name)
    end
  end
  for name, environment in pairs(environments) do
    local read = environment.read
    if read[1] ~= environment.running or read[2] ~= environment.eligible or read[3] ~= environment.delayed then
      redis.call("HSET", environment_of .. name, "running", environment.running, "eligible", environment.eligible,
        "delayed", environment.delayed)
    end
    local ready = environment.has_ready or redis.call("EXISTS", ring_of .. name) == 1
    if ready and environment.running < environment.most then
      redis.call("ZADD", ready_key, "NX", turn, name)
      if environment.was_full then
        redis.call("PUBLISH", wake_channel, name .. "/")
      end
    else
      redis.call("ZREM", ready_key, name)
    end
  end
  for _, queue in ipairs(opened) do
    emit_queue(queue)
  end
  return result
end
