-- finish: flushes the pending writes, updates totals and rings of ready queues, wakes waiting dequeues, emits metrics.
-- Every command that changes tasks calls it once, before it returns.
local function finish(result)
  flush_writes()
  for _, queue in ipairs(loaded_queues) do
    local environment, name = queue.environment, queue.name
    if queue.eligible == 0 and queue.priorities ~= "" then
      queue.priorities, queue.priorities_changed = "", true
    end
    if queue.priorities_changed then
      redis.call("HSET", queue_of .. name, "priorities", queue.priorities)
    end
    if queue.created_ms then
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
    -- A full environment keeps its ready queues in its own ring and leaves the ring of the shard.
    if queue.eligible > 0 and not queue.paused and queue.running < queue.max_running then
      environment.has_ready_queue = true
      if redis.call("ZADD", ring_of .. environment.name, "NX", next_turn, name) == 1 and not environment.was_full then
        redis.call("PUBLISH", wake_channel, name)
      end
    else
      redis.call("ZREM", ring_of .. environment.name, name)
    end
  end
  for name, environment in pairs(environments) do
    local stored = environment.stored
    if stored[1] ~= environment.running or stored[2] ~= environment.eligible or stored[3] ~= environment.delayed then
      redis.call("HSET", environment_of .. name, "running", environment.running, "eligible", environment.eligible,
        "delayed", environment.delayed)
    end
    local is_ready = environment.has_ready_queue or redis.call("EXISTS", ring_of .. name) == 1
    if is_ready and environment.running < environment.max_running then
      redis.call("ZADD", ready_key, "NX", next_turn, name)
      if environment.was_full then
        redis.call("PUBLISH", wake_channel, name .. "/")
      end
    else
      redis.call("ZREM", ready_key, name)
    end
  end
  for _, queue in ipairs(loaded_queues) do
    emit_queue(queue)
  end
  return result
end
