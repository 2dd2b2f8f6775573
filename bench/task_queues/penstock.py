"""Penstock's run queues: in this process, as the peers are used, and over HTTP with the client.

Each call has one task, as for the peers. With `batches` a call has a hundred, which the peers cannot do.
"""

from __future__ import annotations

from typing import TypeVar

from bench.task_queues.task_queue import IN_FLIGHT, TaskQueue, run_concurrently
from penstock.client import Client, ClientSettings
from penstock.client import NewTask as ClientTask
from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, RunningTask

T = TypeVar("T")

BATCH = 100
WORKERS = 4
"""Concurrent dequeues: while one worker's tasks are acked, another worker dequeues."""


class PenstockInProcess(TaskQueue):
    def __init__(self, name: str, url: str, *, metrics_enabled: bool = True, batches: bool = False) -> None:
        self.name = name
        self._url = url
        self._metrics_enabled = metrics_enabled
        self._batches = batches
        self._queues: RunQueues | None = None
        self._queue = ""
        self._tasks: list[NewTask] = []

    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        self._queues = RunQueues(self._url, metrics_enabled=self._metrics_enabled)
        await self._queues.start()
        self._queue = f"{self.name}-{round_number}".replace(" ", "-")
        self._tasks = [NewTask(payload) for payload in payloads]

    async def fill(self) -> None:
        queues = self._open_queues()
        size = BATCH if self._batches else 1
        batches = _split_batches(self._tasks, size)
        await run_concurrently(
            batches, lambda batch: queues.enqueue(DEFAULT_SCOPE, self._queue, batch), IN_FLIGHT
        )

    async def drain(self) -> None:
        queues = self._open_queues()

        async def ack(task: RunningTask) -> None:
            await queues.ack(DEFAULT_SCOPE, task.lease)

        async def dequeue_and_ack(number: int) -> None:
            tasks = await queues.dequeue(DEFAULT_SCOPE, self._queue, limit=BATCH)
            if self._batches:
                await queues.ack_many(DEFAULT_SCOPE, [task.lease for task in tasks])
            else:
                await run_concurrently(tasks, ack)

        await run_concurrently(range(-(-len(self._tasks) // BATCH)), dequeue_and_ack, WORKERS)

    async def count_tasks(self) -> int:
        state = await self._open_queues().get_queue(DEFAULT_SCOPE, self._queue)
        return state.eligible + state.delayed + state.running

    async def close(self) -> None:
        if self._queues is not None:
            await self._queues.stop()

    def _open_queues(self) -> RunQueues:
        assert self._queues is not None
        return self._queues


class PenstockOverHttp(TaskQueue):
    """The broker is a separate process. The client sends no transaction ids, because the peers have none."""

    def __init__(self, name: str, port: int, *, batches: bool = False) -> None:
        self.name = name
        self._port = port
        self._batches = batches
        self._client: Client | None = None
        self._queue = ""
        self._payloads: list[str] = []

    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        settings = ClientSettings(make_transaction_ids=False)
        self._client = Client(f"http://127.0.0.1:{self._port}", settings)
        self._queue = f"{self.name}-{round_number}".replace(" ", "-").replace(",", "")
        self._payloads = [payload.decode() for payload in payloads]

    async def fill(self) -> None:
        tasks = self._open_client().tasks
        if self._batches:
            batches = _split_batches([ClientTask(payload) for payload in self._payloads], BATCH)
            await run_concurrently(batches, lambda batch: tasks.enqueue_many(self._queue, batch), 4)
        else:
            await run_concurrently(self._payloads, lambda payload: tasks.enqueue(self._queue, payload))

    async def drain(self) -> None:
        tasks = self._open_client().tasks

        async def dequeue_and_ack(number: int) -> None:
            dequeued = await tasks.dequeue(self._queue, limit=BATCH)
            if self._batches:
                await tasks.ack_many(dequeued)
            else:
                await run_concurrently(dequeued, tasks.ack)

        await run_concurrently(range(-(-len(self._payloads) // BATCH)), dequeue_and_ack, WORKERS)

    async def count_tasks(self) -> int:
        state = await self._open_client().tasks.queue(self._queue)
        return state.depth + state.delayed + state.running

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _open_client(self) -> Client:
        assert self._client is not None
        return self._client


def _split_batches(tasks: list[T], size: int) -> list[list[T]]:
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]
