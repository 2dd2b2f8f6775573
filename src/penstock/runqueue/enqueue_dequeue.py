"""Tasks going in and out: enqueue and dequeue, merged with what others ask for at the same moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import msgpack

from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.keys import new_task_id, queue_name, read_queue_name
from penstock.runqueue.limits import check_many, check_task
from penstock.runqueue.merging import Merger
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import Enqueued, NewTask, RunningTask

MOST_BYTES = 4 * 1024 * 1024
"""Of payloads in one answer: what is larger holds Redis up, and everybody with it."""

BYTES_PER_TASK = 8 * 1024
"""What a task may have before it counts as more than one when calls are merged."""

MOST_ASKING = 250
"""Tasks that dequeues which travel together may ask for: each may have a payload."""

logger = logging.getLogger(__name__)

Request = tuple[str, str, int, int, str]
"""Environment, queue, how many, visibility in ms, worker; an empty name stands for any."""

NewItem = tuple[tuple[Any, ...], bytes]


class Handing:
    """`give_back` takes what was handed out to a caller who had left."""

    def __init__(
        self,
        scripts: Scripts,
        idempotency_ms: int,
        give_back: Callable[[list[RunningTask]], Awaitable[None]],
    ) -> None:
        self._scripts = scripts
        self._idempotency_ms = idempotency_ms
        self._give_back = give_back
        self._enqueue: Merger[NewItem, Enqueued] = Merger(self._execute_enqueue)
        self._dequeue: Merger[Request, list[RunningTask]] = Merger(
            self._execute_dequeue, self._abandoned, most=MOST_ASKING
        )

    async def enqueue(self, shard: int, scope: Scope, queue: str, tasks: Sequence[NewTask]) -> list[Enqueued]:
        check_many("tasks", tasks)
        name = queue_name(scope, queue)
        items = [(_new_item(name, new_task_id(shard), check_task(task)), task.payload) for task in tasks]
        size = sum(len(task.payload) for task in tasks)
        return await self._enqueue.submit(shard, items, len(items) + size // BYTES_PER_TASK) if items else []

    async def dequeue(self, shard: int, request: Request) -> list[RunningTask]:
        [tasks] = await self._dequeue.submit(shard, [request], weight=request[2])
        return tasks

    async def drain(self) -> None:
        await asyncio.gather(self._enqueue.drain(), self._dequeue.drain())

    async def _execute_enqueue(self, shard: int, items: list[NewItem]) -> list[Enqueued]:
        heads = [head for head, _ in items]
        ids = await self._scripts.call(
            "enqueue", shard, msgpack.encode(heads), self._idempotency_ms, *(payload for _, payload in items)
        )
        return [Enqueued(id.decode(), id.decode() != head[1]) for id, head in zip(ids, heads, strict=True)]

    async def _execute_dequeue(self, shard: int, requests: list[Request]) -> list[list[RunningTask]]:
        reply = await self._scripts.call("dequeue", shard, msgpack.encode(requests), MOST_BYTES)
        now, *answers = msgpack.decode(reply[0])
        payloads = iter(reply[1:])
        return [[_running(now, row, next(payloads)) for row in answer] for answer in answers]

    async def _abandoned(self, shard: int, results: list[list[RunningTask]]) -> None:
        tasks = [task for result in results for task in result]
        if tasks:
            try:
                await self._give_back(tasks)
            except PenstockError as error:
                logger.warning("%d tasks come back at their deadline only: %s", len(tasks), error.detail)


def _new_item(name: str, task_id: str, task: NewTask) -> tuple[Any, ...]:
    return (
        name,
        task_id,
        task.priority,
        task.delay_ms,
        task.ttl_ms or 0,
        task.max_attempts,
        task.idempotency_key or "",
    )


def _running(now: int, row: list[Any], payload: bytes) -> RunningTask:
    task_id, name, token, attempt, max_attempts, priority, enqueued_ms, deadline_ms = row
    scope, queue = read_queue_name(name)
    return RunningTask(
        task_id, scope, queue, token, payload, attempt, max_attempts, priority, enqueued_ms, now, deadline_ms
    )
