"""Read tasks, queues, environments and dead tasks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import msgpack
from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask
from penstock.model import Scope
from penstock.runqueue.keys import (
    KEY_PREFIXES,
    SHARD_KEYS,
    environment_name,
    parse_queue_name,
    queue_name,
    shard_of_task,
    shard_prefix,
)
from penstock.runqueue.limits import MAX_REPLY_BYTES, check_number
from penstock.runqueue.script_errors import translate_redis_errors
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import DeadTaskPage, EnvironmentState, QueueState, Task
from penstock.runqueue.task_records import decode_task, scope_of_record

QUEUES_PER_CALL = 200
MAX_PAGE_SIZE = 1_000
_COUNTER_WIRES = msgpack.encode([counter.wire for counter in QUEUE.counters])


async def get_task(client: Redis, scope: Scope, task_id: str) -> Task:
    prefix = shard_prefix(shard_of_task(task_id))
    async with client.pipeline(transaction=True) as transaction:
        transaction.hget(prefix + SHARD_KEYS["tasks"], task_id)
        transaction.hget(prefix + SHARD_KEYS["payloads"], task_id)
        with translate_redis_errors():
            record, payload = await transaction.execute()
    if record is None or scope_of_record(record) != scope:
        raise UnknownTask(
            f"Task {task_id} does not exist in this environment: it is acked, has expired or never existed.",
            taskId=task_id,
        )
    return decode_task(task_id, record, payload or b"")


async def list_queues(client: Redis, scripts: Scripts, shard: int, scope: Scope) -> list[QueueState]:
    names = await environment_queue_names(client, shard, scope)
    states: list[QueueState] = []
    for start in range(0, len(names), QUEUES_PER_CALL):
        states += (await inspect(scripts, shard, scope, names[start : start + QUEUES_PER_CALL]))[1]
    return sorted(states, key=lambda state: state.queue)


async def environment_queue_names(client: Redis, shard: int, scope: Scope) -> list[str]:
    """Return the sorted names of an environment's queues, with their scope."""
    key = shard_prefix(shard) + KEY_PREFIXES["queues_of"] + environment_name(scope)
    return sorted(await read_set(client, key))


async def nearest_queue_names(client: Redis, shard: int, scope: Scope, queue: str, limit: int) -> list[str]:
    names = await environment_queue_names(client, shard, scope)
    middle = bisect_left(names, queue_name(scope, queue))
    return [parse_queue_name(name)[1] for name in names[max(0, middle - limit) : middle + limit]]


async def get_queue(scripts: Scripts, shard: int, scope: Scope, queue: str) -> QueueState:
    states = (await inspect(scripts, shard, scope, [queue_name(scope, queue)]))[1]
    if not states:
        raise unknown_queue(queue)
    return states[0]


async def has_queue(client: Redis, shard: int, scope: Scope, queue: str) -> bool:
    with translate_redis_errors():
        return bool(
            await client.exists(shard_prefix(shard) + KEY_PREFIXES["queue_of"] + queue_name(scope, queue))
        )


async def inspect(
    scripts: Scripts, shard: int, scope: Scope, names: Iterable[str]
) -> tuple[EnvironmentState, list[QueueState]]:
    """Return the state of an environment, and of those of its queues in `names` that exist."""
    reply = await scripts.call(
        "inspect", shard, environment_name(scope), msgpack.encode(list(names)), _COUNTER_WIRES
    )
    queues, eligible, delayed, running, limit, burst, oldest_age_ms, *rows = msgpack.decode(reply)
    environment = EnvironmentState(
        queues, eligible, delayed, running, _limit_or_none(limit), float(burst), oldest_age_ms
    )
    return environment, [_queue_state(*row) for row in rows]


async def list_dead_tasks(
    scripts: Scripts, shard: int, scope: Scope, queue: str, limit: int, after: str | None
) -> DeadTaskPage:
    check_number("limit", limit, 1, MAX_PAGE_SIZE)
    from_ms, after_id = _parse_cursor(after) if after else ("-inf", "")
    try:
        has_more, *page = await scripts.call(
            "dead_letters", shard, queue_name(scope, queue), from_ms, after_id, limit, MAX_REPLY_BYTES
        )
    except UnknownQueue:
        raise unknown_queue(queue) from None
    tasks = _decode_tasks(page)
    return DeadTaskPage(tuple(tasks), f"{tasks[-1].dead_ms}:{tasks[-1].id}" if has_more else None)


async def list_current_tasks(
    scripts: Scripts, shard: int, scope: Scope, queue: str, limit: int
) -> list[Task]:
    check_number("limit", limit, 1, MAX_PAGE_SIZE)
    try:
        reply = await scripts.call("current_tasks", shard, queue_name(scope, queue), limit, MAX_REPLY_BYTES)
    except UnknownQueue:
        raise unknown_queue(queue) from None
    return _decode_tasks(reply)


def _decode_tasks(reply: Sequence[bytes]) -> list[Task]:
    """Return the tasks of a reply that has the id, record and payload of each in turn."""
    return [decode_task(reply[i].decode(), reply[i + 1], reply[i + 2]) for i in range(0, len(reply), 3)]


async def read_set(client: Redis, key: str) -> list[str]:
    with translate_redis_errors():
        members = await client.smembers(key)
    return [name.decode() if isinstance(name, bytes) else name for name in members]


def unknown_queue(queue: str) -> UnknownQueue:
    return UnknownQueue(
        f"Run queue {queue!r} does not exist. Enqueue a task to create it.",
        queue=queue,
    )


def _parse_cursor(after: str) -> tuple[str, str]:
    dead_ms, colon, task_id = after.partition(":")
    if not colon or not dead_ms.isdigit() or len(dead_ms) > 15 or len(task_id) > 40:
        raise InvalidRequest(f"after must be the `next` of a page, not {after[:100]!r}.")
    return dead_ms, task_id


def _queue_state(
    name: str,
    eligible: int,
    delayed: int,
    running: int,
    dead: int,
    limit: int,
    paused: bool,
    age_ms: int,
    counter_totals: list[int],
) -> QueueState:
    _, queue = parse_queue_name(name)
    totals = {counter.name: total for counter, total in zip(QUEUE.counters, counter_totals, strict=True)}
    return QueueState(queue, eligible, delayed, running, dead, _limit_or_none(limit), paused, age_ms, totals)


def _limit_or_none(value: int) -> int | None:
    return None if value < 0 else value
