"""Penstock's run queues: in the process, as the peers are used, and over HTTP with the client.

One task per call, as for the peers; `batches` has a hundred per call, which they cannot do.
"""

from __future__ import annotations

from typing import Any

from bench.task_queues.contestant import IN_FLIGHT, TaskQueue, at_once
from penstock.client import Client, ClientSettings
from penstock.client import NewTask as ClientTask
from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask, RunningTask

BATCH = 100
WORKERS = 4
"""How many take tasks at once: while one has its tasks acked, another dequeues."""


class Penstock(TaskQueue):
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
        queues = self._opened()
        size = BATCH if self._batches else 1
        batches = _split(self._tasks, size)
        await at_once(batches, lambda batch: queues.enqueue(DEFAULT_SCOPE, self._queue, batch), IN_FLIGHT)

    async def drain(self) -> None:
        queues = self._opened()

        async def ack(task: RunningTask) -> None:
            await queues.ack(DEFAULT_SCOPE, task.lease)

        async def take(number: int) -> None:
            tasks = await queues.dequeue(DEFAULT_SCOPE, self._queue, limit=BATCH)
            if self._batches:
                await queues.ack_many(DEFAULT_SCOPE, [task.lease for task in tasks])
            else:
                await at_once(tasks, ack)

        await at_once(range(-(-len(self._tasks) // BATCH)), take, WORKERS)

    async def held(self) -> int:
        state = await self._opened().get_queue(DEFAULT_SCOPE, self._queue)
        return state.eligible + state.delayed + state.running

    async def close(self) -> None:
        if self._queues is not None:
            await self._queues.stop()

    def _opened(self) -> RunQueues:
        assert self._queues is not None
        return self._queues


class PenstockOverHttp(TaskQueue):
    """The broker is a process of its own; without keys of the client's, as the peers have none either."""

    def __init__(self, name: str, port: int, *, batches: bool = False) -> None:
        self.name = name
        self._port = port
        self._batches = batches
        self._client: Client | None = None
        self._queue = ""
        self._payloads: list[Any] = []

    async def open(self, round_number: int, payloads: list[bytes]) -> None:
        settings = ClientSettings(make_transaction_ids=False)
        self._client = Client(f"http://127.0.0.1:{self._port}", settings)
        self._queue = f"{self.name}-{round_number}".replace(" ", "-").replace(",", "")
        self._payloads = [payload.decode() for payload in payloads]

    async def fill(self) -> None:
        tasks = self._opened().tasks
        if self._batches:
            batches = _split([ClientTask(payload) for payload in self._payloads], BATCH)
            await at_once(batches, lambda batch: tasks.enqueue_many(self._queue, batch), 4)
        else:
            await at_once(self._payloads, lambda payload: tasks.enqueue(self._queue, payload))

    async def drain(self) -> None:
        tasks = self._opened().tasks

        async def take(number: int) -> None:
            taken = await tasks.dequeue(self._queue, limit=BATCH)
            if self._batches:
                await tasks.ack_many(taken)
            else:
                await at_once(taken, tasks.ack)

        await at_once(range(-(-len(self._payloads) // BATCH)), take, WORKERS)

    async def held(self) -> int:
        state = await self._opened().tasks.queue(self._queue)
        return state.depth + state.delayed + state.running

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _opened(self) -> Client:
        assert self._client is not None
        return self._client


def _split(tasks: list[Any], size: int) -> list[list[Any]]:
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]
