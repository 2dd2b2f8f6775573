"""Enqueue and dequeue tasks, merged with concurrent calls of the same kind."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence

from msgspec import msgpack

from penstock.batching import Batcher, QueueTimeout, split_results
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.keys import new_task_id, parse_queue_name, queue_name
from penstock.runqueue.limits import check_item_count, check_task
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
        queue_timeout: QueueTimeout | None = None,
    ) -> None:
        self._scripts = scripts
        self._idempotency_ms = idempotency_ms
        self._release_abandoned = release_abandoned
        self.enqueues: Batcher[list[tuple[TaskHeader, bytes]], list[EnqueueResult]] = Batcher(
            self._execute_enqueues, queue_timeout=queue_timeout, isolates_failures=False
        )
        self.dequeues: Batcher[DequeueRequest, list[RunningTask]] = Batcher(
            self._execute_dequeues,
            max_items=MAX_MERGED_TASKS,
            queue_timeout=queue_timeout,
            isolates_failures=False,
            on_abandoned=self._release,
        )

    @property
    def has_pending_dequeues(self) -> bool:
        """Whether a dequeue is in flight to Redis."""
        return self.dequeues.in_flight > 0

    async def enqueue(
        self, shard: int, scope: Scope, queue: str, tasks: Sequence[NewTask]
    ) -> list[EnqueueResult]:
        check_item_count("tasks", tasks)
        name = queue_name(scope, queue)
        items = [(_task_header(name, new_task_id(shard), check_task(task)), task.payload) for task in tasks]
        if not items:
            return []
        size = sum(len(task.payload) for task in tasks)
        return await self.enqueues.submit(shard, items, items=len(items) + size // BYTES_PER_WEIGHT)

    async def dequeue(self, shard: int, request: DequeueRequest) -> list[RunningTask]:
        return await self.dequeues.submit(shard, request, items=request[2])

    async def _execute_enqueues(
        self, shard: Hashable, requests: Sequence[list[tuple[TaskHeader, bytes]]]
    ) -> list[list[EnqueueResult]]:
        assert isinstance(shard, int)
        items = [item for request in requests for item in request]
        headers = [header for header, _ in items]
        ids = await self._scripts.call(
            "enqueue",
            shard,
            msgpack.encode(headers),
            self._idempotency_ms,
            *(payload for _, payload in items),
        )
        results = [
            EnqueueResult(id.decode(), id.decode() != header[1])
            for id, header in zip(ids, headers, strict=True)
        ]
        return split_results(requests, results)

    async def _execute_dequeues(
        self, shard: Hashable, requests: Sequence[DequeueRequest]
    ) -> list[list[RunningTask]]:
        assert isinstance(shard, int)
        reply = await self._scripts.call("dequeue", shard, msgpack.encode(requests), MAX_REPLY_BYTES)
        now_ms, *results = msgpack.decode(reply[0])
        payloads = iter(reply[1:])
        return [[_running_task(now_ms, row, next(payloads)) for row in rows] for rows in results]

    async def _release(self, shard: Hashable, request: DequeueRequest, tasks: list[RunningTask]) -> None:
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
