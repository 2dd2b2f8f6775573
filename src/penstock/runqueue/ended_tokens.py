"""Release the running tasks that were leased with an access token which has ended."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import msgpack
from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.keys import KEY_PREFIXES, shard_prefix
from penstock.runqueue.overview import environment_queue_names, read_set
from penstock.runqueue.scripts import Scripts

TASKS_PER_CALL = 500
"""A larger call would block Redis for other clients."""


async def release_tasks_of_tokens(
    client: Redis, scripts: Scripts, shard: int, scope: Scope, token_numbers: Collection[int]
) -> int:
    """Release the tasks of an environment that run under these tokens; return how many. May be repeated."""
    released = 0
    for name in await environment_queue_names(client, shard, scope):
        ids = await read_set(client, shard_prefix(shard) + KEY_PREFIXES["running_of"] + name)
        for start in range(0, len(ids), TASKS_PER_CALL):
            chunk = ids[start : start + TASKS_PER_CALL]
            released += await scripts.call(
                "release_token", shard, name, msgpack.encode(chunk), msgpack.encode(list(token_numbers))
            )
    return released
