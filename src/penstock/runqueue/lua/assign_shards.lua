-- assign_shards: raises the number of shards, and reads or records the shards of environments.
-- KEYS[1]  count_key: string, the number of shards. It never falls
-- KEYS[2]  records_key: hash, environment → shard, which the first process records and nothing changes;
--          created_us: when the hash was created; first_count: the number of shards at that time
-- ARGV[1]  count: the number of shards that the process is set to or knows
-- ARGV[2]  proposals: MessagePack, list of {environment, shard to record if it has none, or -1}
-- Returns  {number of shards, created_us, first_count, then the shard of each environment or -1}
-- Errors   none
-- Complexity  O(proposals)
local count_key, records_key = KEYS[1], KEYS[2]
local count, proposals = tonumber(ARGV[1]), cmsgpack.unpack(ARGV[2])

local stored = tonumber(redis.call("GET", count_key)) or 0
if redis.call("EXISTS", records_key) == 0 then
  local time = redis.call("TIME")
  local created_us = time[1] .. string.format("%06d", time[2])
  redis.call("HSET", records_key, "created_us", created_us, "first_count", stored > 0 and stored or count)
end
local shards = {}
for index, proposal in ipairs(proposals) do
  local environment, shard = proposal[1], proposal[2]
  if shard >= 0 then
    redis.call("HSETNX", records_key, environment, shard)
  end
  shards[index] = tonumber(redis.call("HGET", records_key, environment)) or -1
  -- Whatever was done to the number by hand: a shard that is in use is swept.
  count = math.max(count, shards[index] + 1)
end
if count > stored then
  redis.call("SET", count_key, count)
end
local origin = redis.call("HMGET", records_key, "created_us", "first_count")
return { math.max(count, stored), tonumber(origin[1]), tonumber(origin[2]), unpack(shards) }
