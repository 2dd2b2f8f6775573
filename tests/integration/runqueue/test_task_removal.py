"""All tasks, queues, limits and idempotency keys of an environment can be deleted."""

from __future__ import annotations

from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.keys import environment_name
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import Nack, NewTask


async def keys_of(redis: Redis, scope: Scope) -> set[str]:
    """The keys that have the name of an environment in them, or in a value."""
    name, keys = environment_name(scope).encode(), set[str]()
    async for key in redis.scan_iter("penstock:run:*"):
        text = key.decode() if isinstance(key, bytes) else key
        if name.decode() in text:
            keys.add(text)
            continue
        match await redis.type(key):
            case b"hash":
                holds_name = any(name in value for value in (await redis.hgetall(key)).values())
            case b"set":
                holds_name = name in await redis.smembers(key)
            case b"zset":
                holds_name = await redis.zscore(key, name) is not None
            case _:
                holds_name = False
        if holds_name:
            keys.add(f"{text} holds it")
    return keys


async def fill(queues: RunQueues, scope: Scope) -> None:
    """Create tasks of every state in two queues, with a limit and idempotency keys."""
    for queue in ("mail", "a/b"):
        tasks = [NewTask(b"x", idempotency_key=f"key {n}", max_attempts=1) for n in range(4)]
        await queues.enqueue(scope, queue, [*tasks, NewTask(b"later", delay_ms=60_000)])
        running, failing = await queues.dequeue(scope, queue, limit=2)
        await queues.nack(scope, Nack(failing.lease, "broken"))
        assert running.queue == queue
    await queues.set_queue_limit(scope, "mail", 3)
    await queues.set_environment_limit(scope, 10)


async def test_deleting_the_tasks_of_an_environment_leaves_nothing_but_other_environments(
    queues: RunQueues, redis: Redis, scope: Scope
) -> None:
    other = scope._replace(environment="production-2")
    await fill(queues, scope)
    await fill(queues, other)
    kept = await keys_of(redis, other)
    deleted = 0
    while count := await queues.delete_some_tasks(scope):
        deleted += count
    assert deleted == 10
    assert await keys_of(redis, scope) <= kept
    assert await keys_of(redis, other) == kept
    assert await queues.list_queues(scope) == []
    assert (await queues.get_environment(scope)).limit is None
    [result] = await queues.enqueue(scope, "mail", [NewTask(b"x", idempotency_key="key 1")])
    assert not result.duplicate
    assert await queues.repair() == 0
