"""Run queues on Redis: tasks with concurrency limits, priority, delay and time to live.

Every change is one Lua script on one shard, so it happens whole or not at all, and writes its own metrics.
All keys of a shard lie in one slot. Nothing here knows HTTP or PostgreSQL.
"""
