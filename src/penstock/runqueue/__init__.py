"""Run queues on Redis: tasks with concurrency limits, priority, delay and time to live.

Every change is one Lua script on one shard, so it is atomic, and the script writes its own metrics. All
keys of a shard are in one Redis Cluster slot. This package must not know HTTP or PostgreSQL.
"""
