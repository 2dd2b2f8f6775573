"""Enqueue and dequeue tasks, merged with concurrent calls of the same kind."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

from msgspec import msgpack

from penstock.batching import Batcher, QueueTimeout, Receiver, split_results
from penstock.caller import Caller
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.keys import new_task_id, parse_queue_name, queue_name
from penstock.runqueue.limits import MAX_REPLY_BYTES, check_item_count, check_task
from penstock.runqueue.pending_dequeue import DequeueArguments, PendingDequeue
from penstock.runqueue.scripts import Scripts
from penstock.runqueue.task_model import EnqueueResult, NewTask, RunningTask
from penstock.runqueue.task_wakeups import TaskWakeups
from penstock.trace_context import TRACED_MARK, split_context

BYTES_PER_WEIGHT = 8 * 1024
"""When calls are merged, a task weighs one more for each of these bytes of payload."""

MAX_MERGED_TASKS = 250
"""Tasks that merged dequeues may request together: each may have a payload."""

logger = logging.getLogger(__name__)

TaskHeader = tuple[str, str, int, int, int, int, str]
"""Queue, task id, priority, delay in ms, time to live in ms or 0, maximum attempts, idempotency key or ""."""

DequeuedRow = tuple[str, str, int, int, int, int, int, int]
"""Task id, queue, token, attempt, maximum attempts, priority, enqueued at, deadline."""


class TaskDispatcher:
    """Enqueues and dequeues tasks of all queues.

    `release_abandoned` receives tasks that were leased for a caller which was cancelled before it got them.
    `sweep_within` learns when a task changes by time alone: its delay or its lease ends.
    """

    def __init__(
        self,
        scripts: Scripts,
        wakeups: TaskWakeups,
        idempotency_ms: int,
        release_abandoned: Callable[[list[RunningTask]], Awaitable[None]],
        sweep_within: Callable[[int], None],
        queue_timeout: QueueTimeout | None = None,
    ) -> None:
        self._scripts = scripts
        self._wakeups = wakeups
        self._idempotency_ms = idempotency_ms
        self._release_abandoned = release_abandoned
        self._sweep_within = sweep_within
        self.enqueues: Batcher[list[tuple[TaskHeader, bytes]], list[EnqueueResult]] = Batcher(
            self._execute_enqueues, queue_timeout=queue_timeout, isolates_failures=False
        )
        self.dequeues: Batcher[DequeueArguments, list[RunningTask]] = Batcher(
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

    def start_enqueue(
        self,
        shard: int,
        scope: Scope,
        queue: str,
        tasks: Sequence[NewTask],
        receiver: Receiver[list[EnqueueResult]],
    ) -> None:
        check_item_count("tasks", tasks)
        name = queue_name(scope, queue)
        items = [(_task_header(name, new_task_id(shard), check_task(task)), task.payload) for task in tasks]
        if items:
            size = sum(len(task.payload) for task in tasks)
            self.enqueues.put(shard, items, receiver, items=len(items) + size // BYTES_PER_WEIGHT)
        else:
            receiver.set_result([])

    def start_dequeue(
        self,
        shards: Iterable[int],
        arguments: DequeueArguments,
        wait_s: float,
        receiver: Receiver[list[RunningTask]],
        caller: Caller,
    ) -> PendingDequeue:
        """Start a dequeue that tries the shards in this order until one of them has a task."""
        pending = PendingDequeue(self.dequeues, self._wakeups, shards, arguments, wait_s, receiver, caller)
        pending.start()
        return pending

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
        if delays_ms := [header[3] for header in headers if header[3]]:
            self._sweep_within(min(delays_ms))
        results = [
            EnqueueResult(id.decode(), id.decode() != header[1])
            for id, header in zip(ids, headers, strict=True)
        ]
        return split_results(requests, results)

    async def _execute_dequeues(
        self, shard: Hashable, requests: Sequence[DequeueArguments]
    ) -> list[list[RunningTask]]:
        assert isinstance(shard, int)
        reply = await self._scripts.call("dequeue", shard, msgpack.encode(requests), MAX_REPLY_BYTES)
        now_ms, *results = msgpack.decode(reply[0])
        payloads = iter(reply[1:])
        if leases_ms := [request[3] for request, rows in zip(requests, results, strict=True) if rows]:
            self._sweep_within(min(leases_ms))
        return [[_running_task(now_ms, row, next(payloads)) for row in rows] for rows in results]

    async def _release(self, shard: Hashable, arguments: DequeueArguments, tasks: list[RunningTask]) -> None:
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
    traceparent = None
    if payload[:1] == TRACED_MARK:
        payload, traceparent = split_context(payload)
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
        traceparent,
    )
