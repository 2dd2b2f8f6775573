"""Move tasks of many environments, and check that none is lost, repeated or over a limit."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence

from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask
from tests.deadlines import deadline_s
from tests.emitted_counts import sum_emitted_counts

TASKS_PER_SCOPE, TASKS_PER_CALL = 150, 10
LIMIT, WORKERS_PER_SERVICE = 5, 3


class TaskLoad:
    """The load on one queue of every environment, through all services alike.

    Each environment gets tasks until `stop`, and at least `TASKS_PER_SCOPE` of them.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._is_stopping = False
        self._running: Counter[Scope] = Counter()
        self._producers: dict[Scope, asyncio.Task[int]] = {}
        self._workers: list[asyncio.Task[None]] = []
        self.most_running: Counter[Scope] = Counter()
        self.acked: dict[Scope, Counter[bytes]] = defaultdict(Counter)

    @property
    def acked_count(self) -> int:
        return sum(counts.total() for counts in self.acked.values())

    def start(self, scope: Scope, services: Sequence[RunQueues]) -> None:
        """Start to use the environment through all services at once."""
        self._producers[scope] = asyncio.create_task(self._produce(scope, services))
        for service in services:
            self._workers += [
                asyncio.create_task(self._work(scope, service)) for _ in range(WORKERS_PER_SERVICE)
            ]

    async def stop(self) -> None:
        """Stop to enqueue, and wait until all tasks are acked."""
        self._is_stopping = True
        async with asyncio.timeout(deadline_s(60)):
            await asyncio.gather(*self._producers.values(), *self._workers)

    async def check(self, service: RunQueues, client: Redis) -> None:
        """Every task was acked once, no limit was exceeded, and all counts are exact."""
        total = 0
        for scope, producer in self._producers.items():
            sent = producer.result()
            assert self.acked[scope] == Counter({b"%d" % n: 1 for n in range(sent)}), scope
            assert 1 < self.most_running[scope] <= LIMIT, scope
            state = await service.get_queue(scope, self._queue)
            assert (state.eligible, state.delayed, state.running) == (0, 0, 0), scope
            assert (state.totals["enqueued"], state.totals["acked"]) == (sent, sent), scope
            total += sent
        counts = await sum_emitted_counts(client, self._queue)
        assert (counts["enqueued"], counts["dequeued"], counts["acked"]) == (total, total, total)
        assert await service.repair() == 0

    async def _produce(self, scope: Scope, services: Sequence[RunQueues]) -> int:
        await asyncio.gather(*(service.set_queue_limit(scope, self._queue, LIMIT) for service in services))
        sent = 0
        while sent < TASKS_PER_SCOPE or not self._is_stopping:
            service = services[sent // TASKS_PER_CALL % len(services)]
            tasks = [NewTask(b"%d" % n) for n in range(sent, sent + TASKS_PER_CALL)]
            await service.enqueue(scope, self._queue, tasks)
            sent += TASKS_PER_CALL
        return sent

    async def _work(self, scope: Scope, service: RunQueues) -> None:
        producer, acked = self._producers[scope], self.acked[scope]
        while not producer.done() or acked.total() < producer.result():
            tasks = await service.dequeue(scope, self._queue, limit=3, wait_ms=200)
            self._running[scope] += len(tasks)
            self.most_running[scope] = max(self.most_running[scope], self._running[scope])
            for task in tasks:
                await asyncio.sleep(0)  # other workers dequeue meanwhile
                self._running[scope] -= 1
                await service.ack(scope, task.lease)
                acked[task.payload] += 1
