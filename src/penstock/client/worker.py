"""Workers of run queues: dequeue tasks, call the handler, ack, and shut down gracefully."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError, error_text
from penstock.client.handlers import call_handler
from penstock.client.lifecycle import Runner
from penstock.client.settings import ClientSettings
from penstock.client.task_reports import RunningTask, TaskReporter
from penstock.client.task_types import Task
from penstock.client.tasks import Tasks
from penstock.client.work_fetcher import WorkFetcher

if TYPE_CHECKING:
    from penstock.client.tracing.spans import Tracing

logger = logging.getLogger("penstock.client")

TaskHandler = Callable[[Task], object]
"""Called with each task: a plain function, or one that returns an awaitable."""

LostCallback = Callable[[Task], None]

RELEASE_TIMEOUT_S = 10.0
"""Timeout of reporting and returning tasks when a worker is cancelled."""


class Worker(Runner):
    """Call a handler with tasks until stopped.

    - Up to `concurrency` handlers run at once in this worker; the broker enforces the limits of the queue and
      of the environment over all workers.
    - A handler that is not a coroutine function runs in a thread.
    - Heartbeats extend the lease of a task while its handler runs, three times per `visibility_s`. If the
      lease is lost nevertheless (the broker was unreachable for too long), the worker logs that, calls
      `on_lost` and cancels the handler; another worker gets the task.
    - While brokers or their Redis are unavailable it waits and retries without end.

    `await worker` (or `run()`) returns after `stop()`: running handlers get `grace_s` to end, then they are
    cancelled, and their tasks are returned without counting an attempt. Cancelling `run()` does the same
    without grace. A thread cannot be cancelled: its task returns when its lease expires. A task that was not
    acked is always delivered again.
    """

    def __init__(
        self,
        tasks: Tasks,
        queue: str | None,
        handler: TaskHandler,
        *,
        registry: set[Worker],
        settings: ClientSettings,
        concurrency: int,
        visibility_s: float,
        wait_s: float,
        grace_s: float,
        name: str,
        on_lost: LostCallback | None,
        tracing: Tracing | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        super().__init__(registry)
        self._tasks = tasks
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._visibility_s = visibility_s
        self._wait_s = wait_s
        self._grace_s = grace_s
        self._name = name
        self._on_lost = on_lost
        self._tracing = tracing
        self._running: dict[int, RunningTask] = {}
        self._reporter = TaskReporter(tasks, self._on_lease_lost)
        self._capacity_freed = asyncio.Event()
        self._dequeues = WorkFetcher[Task]("dequeue", settings, self._return_tasks)
        self._threads: ThreadPoolExecutor | None = None

    async def _run(self) -> None:
        self._threads = ThreadPoolExecutor(self._concurrency, "penstock-worker")
        fetching = asyncio.create_task(self._fetch())
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            await asyncio.wait({fetching})
            self._stop_requested = True
            if handlers := [running.handler for running in self._running.values() if running.handler]:
                await asyncio.wait(handlers, timeout=self._grace_s)
        finally:
            self._stop_requested = True
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            await self._cancel_handlers()
            heartbeats.cancel()
            await asyncio.gather(heartbeats, return_exceptions=True)
            self._threads.shutdown(wait=False)
        if not fetching.cancelled() and (error := fetching.exception()) is not None:
            raise error

    async def _cancel_handlers(self) -> None:
        handlers = [running.handler for running in self._running.values() if running.handler]
        for handler in handlers:
            handler.cancel()
        if handlers:
            _, late_handlers = await asyncio.wait(handlers, timeout=RELEASE_TIMEOUT_S)
            for handler in late_handlers:
                handler.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)

    def _start_stopping(self) -> None:
        self._capacity_freed.set()
        self._dequeues.stop()

    async def _fetch(self) -> None:
        while not self._stop_requested:
            free_slots = self._concurrency - len(self._running)
            if not free_slots:
                self._capacity_freed.clear()
                await self._capacity_freed.wait()
                continue
            for task in await self._dequeue_next(free_slots):
                running = self._running[id(task)] = RunningTask(task)
                running.handler = asyncio.create_task(self._run_task(running))

    async def _dequeue_next(self, limit: int) -> list[Task]:
        """Dequeue the next tasks; an empty list if none arrived in time or the worker stops."""
        return await self._dequeues.fetch(
            lambda cancellation: self._tasks.dequeue_cancellable(
                self._queue, limit, self._visibility_s, self._wait_s, self._name, cancellation
            )
        )

    async def _return_tasks(self, tasks: list[Task]) -> None:
        for task in tasks:
            await self._reporter.report(RunningTask(task), "give-back")

    async def _run_task(self, running: RunningTask) -> None:
        task = running.task
        try:
            await self._call_handler(running)
        except asyncio.CancelledError:
            # Cancelled by a stop without grace, or because the lease is lost.
            if not running.lease_lost and not running.thread_continues:
                await self._reporter.report(running, "give-back")
        except Exception as error:
            text = error_text(error)
            logger.warning("Task %s of %s failed: %s", task.id, task.queue, text, exc_info=error)
            await self._reporter.report(running, "nack", text)
        else:
            await self._reporter.report(running, "ack")
        finally:
            del self._running[id(task)]
            self._capacity_freed.set()

    async def _call_handler(self, running: RunningTask) -> None:
        def leave_to_lease() -> None:
            running.thread_continues = True
            logger.warning(
                "A handler did not end in time. Its thread continues; task %s is delivered again.",
                running.task.id,
            )

        assert self._threads is not None
        if self._tracing is None:
            await call_handler(self._handler, running.task, self._threads, leave_to_lease)
            return
        with self._tracing.running(running.task):
            handler = self._tracing.bind(self._handler)
            await call_handler(handler, running.task, self._threads, leave_to_lease)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._visibility_s / 3)
            running_tasks = [r for r in self._running.values() if not r.is_reporting and not r.lease_lost]
            try:
                results = await self._tasks.heartbeat_many(
                    [running.task for running in running_tasks], self._visibility_s
                )
            except ClientError as error:
                logger.warning("Cannot extend the leases of %d tasks: %s", len(running_tasks), error)
                continue
            for running, result in zip(running_tasks, results, strict=True):
                if not result.success and not running.is_reporting and id(running.task) in self._running:
                    self._on_lease_lost(running)

    def _on_lease_lost(self, running: RunningTask) -> None:
        """Record and report a lost lease: another worker has the task or will get it."""
        if running.lease_lost:
            return
        running.lease_lost = True
        logger.warning(
            "Lost the lease of task %s of %s. It is delivered again.", running.task.id, running.task.queue
        )
        if running.handler is not None and not running.is_reporting:
            running.handler.cancel()
        if self._on_lost is not None:
            try:
                self._on_lost(running.task)
            except Exception:
                logger.exception("The callback on_lost failed.")
