"""Looking at run queues: one task, queues, an environment, dead letters."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import msgpack
from redis.asyncio import Redis

from penstock.definitions import QUEUE
from penstock.errors import InvalidRequest, UnknownQueue, UnknownTask
from penstock.model import Scope
from penstock.runqueue.keys import (
    OF_SHARD,
    PER_NAME,
    environment_name,
    queue_name,
    read_queue_name,
    shard_of_task,
    shard_prefix,
)
from penstock.runqueue.limits import check_number
from penstock.runqueue.script_errors import translated
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import DeadLetters, EnvironmentState, QueueState, Task
from penstock.runqueue.task_records import owner_of, read_task

QUEUES_PER_CALL = 200
LARGEST_PAGE = 1_000
_WIRES = msgpack.encode([counter.wire for counter in QUEUE.counters])


async def get_task(client: Redis, scope: Scope, task_id: str) -> Task:
    prefix = shard_prefix(shard_of_task(task_id))
    async with client.pipeline(transaction=True) as both:
        both.hget(prefix + OF_SHARD["tasks"], task_id)
        both.hget(prefix + OF_SHARD["payloads"], task_id)
        with translated():
            record, payload = await both.execute()
    if record is None or owner_of(record) != scope:
        raise UnknownTask(
            f"there is no task {task_id}: it is done, has expired or never was in this environment",
            taskId=task_id,
        )
    return read_task(task_id, record, payload or b"")


async def list_queues(client: Redis, scripts: Scripts, shard: int, scope: Scope) -> list[QueueState]:
    names = sorted(
        await members(client, shard_prefix(shard) + PER_NAME["queues_of"] + environment_name(scope))
    )
    states: list[QueueState] = []
    for start in range(0, len(names), QUEUES_PER_CALL):
        states += (await look(scripts, shard, scope, names[start : start + QUEUES_PER_CALL]))[1]
    return sorted(states, key=lambda state: state.queue)


async def get_queue(scripts: Scripts, shard: int, scope: Scope, queue: str) -> QueueState:
    states = (await look(scripts, shard, scope, [queue_name(scope, queue)]))[1]
    if not states:
        raise unknown_queue(queue)
    return states[0]


async def has_queue(client: Redis, shard: int, scope: Scope, queue: str) -> bool:
    with translated():
        return bool(
            await client.exists(shard_prefix(shard) + PER_NAME["queue_of"] + queue_name(scope, queue))
        )


async def look(
    scripts: Scripts, shard: int, scope: Scope, names: Iterable[str]
) -> tuple[EnvironmentState, list[QueueState]]:
    answer = await scripts.call("look", shard, environment_name(scope), msgpack.encode(list(names)), _WIRES)
    queues, eligible, delayed, running, limit, burst, oldest_age_ms, *rows = msgpack.decode(answer)
    environment = EnvironmentState(
        queues, eligible, delayed, running, _limit(limit), float(burst), oldest_age_ms
    )
    return environment, [_queue_state(*row) for row in rows]


async def dead_letters(
    scripts: Scripts, shard: int, scope: Scope, queue: str, limit: int, after: str | None
) -> DeadLetters:
    check_number("limit", limit, 1, LARGEST_PAGE)
    from_ms, after_id = _read_place(after) if after else ("-inf", "")
    try:
        page = await scripts.call(
            "dead_letters", shard, queue_name(scope, queue), from_ms, after_id, limit + 1
        )
    except UnknownQueue:
        raise unknown_queue(queue) from None
    tasks = [read_task(page[i].decode(), page[i + 1], page[i + 2]) for i in range(0, len(page), 3)]
    last = tasks[limit - 1] if len(tasks) > limit else None
    return DeadLetters(tuple(tasks[:limit]), f"{last.dead_ms}:{last.id}" if last else None)


async def members(client: Redis, key: str) -> list[str]:
    with translated():
        found = await client.smembers(key)
    return [name.decode() if isinstance(name, bytes) else name for name in found]


def unknown_queue(queue: str) -> UnknownQueue:
    return UnknownQueue(
        f"there is no run queue {queue!r}: it comes into being with its first task", queue=queue
    )


def _read_place(after: str) -> tuple[str, str]:
    dead_ms, colon, task_id = after.partition(":")
    if not colon or not dead_ms.isdigit() or len(dead_ms) > 15 or len(task_id) > 40:
        raise InvalidRequest(f"after must be the `next` of a page, not {after[:100]!r}")
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
    totals: list[int],
) -> QueueState:
    _, queue = read_queue_name(name)
    counted = {counter.name: total for counter, total in zip(QUEUE.counters, totals, strict=True)}
    return QueueState(queue, eligible, delayed, running, dead, _limit(limit), paused, age_ms, counted)


def _limit(value: int) -> int | None:
    return None if value < 0 else value
