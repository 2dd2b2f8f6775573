"""Enqueue and dequeue tasks, merged with concurrent calls of the same kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import msgpack

from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.keys import new_task_id, parse_queue_name, queue_name
from penstock.runqueue.limits import check_item_count, check_task
from penstock.runqueue.script_batcher import ScriptBatcher
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import EnqueueResult, NewTask, RunningTask

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""Payload bytes in the reply to one dequeue. A larger reply would block Redis for all clients."""

BYTES_PER_WEIGHT = 8 * 1024
"""When calls are merged, a task weighs one more for each of these bytes of payload."""

MAX_MERGED_TASKS = 250
"""Tasks that merged dequeues may request together: each may have a payload."""

logger = logging.getLogger(__name__)

DequeueRequest = tuple[str, str, int, int, str]
"""Environment, queue, maximum number of tasks, visibility in ms, worker. An empty name means any."""

TaskHeader = tuple[str, str, int, int, int, int, str]
"""Queue, task id, priority, delay in ms, time to live in ms or 0, maximum attempts, idempotency key or ""."""

DequeuedRow = tuple[str, str, int, int, int, int, int, int]
"""Task id, queue, token, attempt, maximum attempts, priority, enqueued at, deadline."""


class TaskDispatcher:
    """Enqueues and dequeues tasks of all queues.

    `release_abandoned` receives tasks that were leased for a caller which was cancelled before it got them.
    """

    def __init__(
        self,
        scripts: Scripts,
        idempotency_ms: int,
        release_abandoned: Callable[[list[RunningTask]], Awaitable[None]],
    ) -> None:
        self._scripts = scripts
        self._idempotency_ms = idempotency_ms
        self._release_abandoned = release_abandoned
        self._enqueues: ScriptBatcher[tuple[TaskHeader, bytes], EnqueueResult] = ScriptBatcher(
            self._execute_enqueue
        )
        self._dequeues: ScriptBatcher[DequeueRequest, list[RunningTask]] = ScriptBatcher(
            self._execute_dequeue, self._release, max_weight=MAX_MERGED_TASKS
        )

    @property
    def has_pending_dequeues(self) -> bool:
        """Whether a dequeue is in flight to Redis."""
        return self._dequeues.has_pending

    async def enqueue(
        self, shard: int, scope: Scope, queue: str, tasks: Sequence[NewTask]
    ) -> list[EnqueueResult]:
        check_item_count("tasks", tasks)
        name = queue_name(scope, queue)
        items = [(_task_header(name, new_task_id(shard), check_task(task)), task.payload) for task in tasks]
        size = sum(len(task.payload) for task in tasks)
        return (
            await self._enqueues.submit(shard, items, len(items) + size // BYTES_PER_WEIGHT) if items else []
        )

    async def dequeue(self, shard: int, request: DequeueRequest) -> list[RunningTask]:
        [tasks] = await self._dequeues.submit(shard, [request], weight=request[2])
        return tasks

    async def drain(self) -> None:
        await asyncio.gather(self._enqueues.drain(), self._dequeues.drain())

    async def _execute_enqueue(
        self, shard: int, items: list[tuple[TaskHeader, bytes]]
    ) -> list[EnqueueResult]:
        headers = [header for header, _ in items]
        ids = await self._scripts.call(
            "enqueue",
            shard,
            msgpack.encode(headers),
            self._idempotency_ms,
            *(payload for _, payload in items),
        )
        return [
            EnqueueResult(id.decode(), id.decode() != header[1])
            for id, header in zip(ids, headers, strict=True)
        ]

    async def _execute_dequeue(self, shard: int, requests: list[DequeueRequest]) -> list[list[RunningTask]]:
        reply = await self._scripts.call("dequeue", shard, msgpack.encode(requests), MAX_REPLY_BYTES)
        now_ms, *results = msgpack.decode(reply[0])
        payloads = iter(reply[1:])
        return [[_running_task(now_ms, row, next(payloads)) for row in rows] for rows in results]

    async def _release(self, shard: int, results: list[list[RunningTask]]) -> None:
        tasks = [task for result in results for task in result]
        if tasks:
            try:
                await self._release_abandoned(tasks)
            except PenstockError as error:
                logger.warning(
                    "%d tasks stay leased until their deadline because releasing them failed: %s",
                    len(tasks),
                    error.detail,
                )


def _task_header(name: str, task_id: str, task: NewTask) -> TaskHeader:
    return (
        name,
        task_id,
        task.priority,
        task.delay_ms,
        task.ttl_ms or 0,
        task.max_attempts,
        task.idempotency_key or "",
    )


def _running_task(now_ms: int, row: DequeuedRow, payload: bytes) -> RunningTask:
    task_id, name, token, attempt, max_attempts, priority, enqueued_ms, deadline_ms = row
    scope, queue = parse_queue_name(name)
    return RunningTask(
        task_id,
        scope,
        queue,
        token,
        payload,
        attempt,
        max_attempts,
        priority,
        enqueued_ms,
        now_ms,
        deadline_ms,
    )
