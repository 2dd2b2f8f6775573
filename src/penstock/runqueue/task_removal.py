"""Drop the waiting tasks of a queue, and delete all tasks and queues of an environment, step by step."""

from __future__ import annotations

from redis.asyncio import Redis

from penstock.errors import UnknownQueue
from penstock.model import Scope
from penstock.runqueue.keys import KEY_PREFIXES, environment_name, queue_name, shard_prefix
from penstock.runqueue.overview import environment_queue_names, unknown_queue
from penstock.runqueue.script_errors import translate_redis_errors
from penstock.runqueue.scripts import Scripts

TASKS_PER_CALL = 500
"""A larger call would block Redis for other clients."""

KEYS_PER_SCAN = 1_000


async def purge_queue(scripts: Scripts, shard: int, scope: Scope, queue: str) -> int:
    """Drop the tasks of a queue that wait or are delayed; return how many. Raises UnknownQueue."""
    dropped = 0
    while True:
        try:
            count: int = await scripts.call("purge", shard, queue_name(scope, queue), TASKS_PER_CALL)
        except UnknownQueue:
            raise unknown_queue(queue) from None
        if not count:
            return dropped
        dropped += count


async def delete_some_tasks(client: Redis, scripts: Scripts, shard: int, scope: Scope) -> int:
    """Delete some tasks of an environment, and its queues without tasks; 0 once it has no queue left."""
    for name in await environment_queue_names(client, shard, scope):
        deleted: int = await scripts.call("delete_tasks", shard, name, TASKS_PER_CALL)
        if deleted:
            return deleted
    await scripts.call("delete_environment", shard, environment_name(scope))
    await _delete_idempotency_keys(client, shard, scope)
    return 0


async def _delete_idempotency_keys(client: Redis, shard: int, scope: Scope) -> None:
    """Find the keys by a scan: nothing lists them, and they expire by themselves otherwise."""
    pattern = f"{shard_prefix(shard)}{KEY_PREFIXES['idempotency_of']}{environment_name(scope)}/*"
    with translate_redis_errors():
        keys = [key async for key in client.scan_iter(_escape_glob(pattern), count=KEYS_PER_SCAN)]
        for start in range(0, len(keys), KEYS_PER_SCAN):
            await client.delete(*keys[start : start + KEYS_PER_SCAN])


def _escape_glob(pattern: str) -> str:
    """Escape all but the `*` at the end. The prefix of a shard has braces, which Redis takes literally."""
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in pattern[:-1]) + "*"
