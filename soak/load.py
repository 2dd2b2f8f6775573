"""The load of a soak: durable queues with several groups, a run queue, an operator of the dead letters.

Pushes and enqueues arrive at a rate of their own, whether or not the platform keeps up; consumers wait for
what arrives. Capacity is measured with the same mix in a closed loop.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from bench.open_loop_load import OpenLoopLoad, Producer
from bench.payloads import generate_payloads
from chaos.polling import poll

from soak.consumers import Consumer, MessageConsumer, TaskWorker

GROUPS = {"soak.orders": ("billing", "shipping", "search"), "soak.events": ("readers",)}
TASK_QUEUE = "soak.tasks"
TASK_LIMIT = 40
PARTITIONS = 64
"""Of each queue. A producer writes to one of them."""
MESSAGES_PER_PUSH = 10
TASKS_PER_ENQUEUE = 2
CONSUMERS_PER_GROUP = 3
TASK_WORKERS = 4
TASK_PRODUCERS = 32
MAX_CONNECTIONS = 64
CLOSED_LOOP_PUSHES, CLOSED_LOOP_ENQUEUES = 8, 4
RETENTION_S, COMPLETED_RETENTION_S = 120, 60
QUEUE_OPTIONS = {
    "leaseTime": 10,
    "retryLimit": 2,
    "retentionEnabled": True,
    "retentionSeconds": RETENTION_S,
    "completedRetentionSeconds": COMPLETED_RETENTION_S,
}
OPERATOR_INTERVAL_S = 20.0
TIMEOUT_S = 30.0

PLATFORM_SETTINGS = {
    "PENSTOCK_CHUNK_MB": "32",
    "PENSTOCK_CHUNK_HOURS": "0.02",
    "PENSTOCK_MAINTENANCE_S": "5",
    "PENSTOCK_RECONCILE_S": "60",
    "PENSTOCK_IDEMPOTENCY_HOURS": "0.02",
    "PENSTOCK_OPERATION_KEEP_S": "60",
    "PENSTOCK_TRACE_DAYS": "0.001",
    "PENSTOCK_AUDIT_DAYS": "0.001",
    "PENSTOCK_WORKER_METRICS_DAYS": "0.002",
}
"""With these, everything that is kept for a time is dropped again within minutes. Chunks are small and
short-lived, so that the log rotates often."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second: pushes of `MESSAGES_PER_PUSH` messages, enqueues of `TASKS_PER_ENQUEUE` tasks."""

    pushes: float
    enqueues: float

    def scaled(self, share: float) -> Rates:
        return Rates(self.pushes * share, self.enqueues * share)


class NotDrained(Exception):
    """The queues were not empty in time."""


class SoakLoad:
    """All clients of the platform. `counts` has what consumers finished, and what went wrong."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._seed = port, seed
        self.counts: Counter[str] = Counter()
        payloads = generate_payloads(1000, seed)
        queues = list(GROUPS)
        producers = [Producer(n, n // len(queues)) for n in range(PARTITIONS * len(queues))]
        self.pushes = OpenLoopLoad(port, producers, _push_body(queues, payloads), MAX_CONNECTIONS)
        self.enqueues = OpenLoopLoad(
            port,
            [Producer(n, 0) for n in range(TASK_PRODUCERS)],
            _enqueue_body(payloads),
            TASK_PRODUCERS,
            f"/api/v1/run-queues/{TASK_QUEUE}/tasks",
        )
        self._http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S)

    async def configure(self) -> None:
        for queue in GROUPS:
            await self._call("POST", "/api/v1/configure", {"queue": queue, "options": QUEUE_OPTIONS})
        await self._call("PUT", f"/api/v1/run-queues/{TASK_QUEUE}/limits", {"concurrency": TASK_LIMIT})

    @asynccontextmanager
    async def consuming(self) -> AsyncIterator[None]:
        """Run consumers, workers and the operator during the block. Raises what one of them raised."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(consumer.run()) for consumer in self._build_consumers()]
            running.append(tasks.create_task(self._operate()))
            try:
                yield
            finally:
                for task in running:
                    task.cancel()

    async def measure_capacity(self, seconds: float) -> Rates:
        """Return the rates that the slowest consumers keep up with, and wait until the queues are empty."""
        before = self.counts.copy()
        await asyncio.gather(
            self.pushes.run_closed_loop(CLOSED_LOOP_PUSHES, seconds),
            self.enqueues.run_closed_loop(CLOSED_LOOP_ENQUEUES, seconds),
        )
        done = self.counts - before
        # Producers take turns among the queues, so each queue gets its share of the pushes.
        slowest = min(done[f"{queue} {group}"] for queue, groups in GROUPS.items() for group in groups)
        pushes = min(self.pushes.counts.sent, slowest * len(GROUPS) / MESSAGES_PER_PUSH)
        enqueues = min(self.enqueues.counts.sent, done[TASK_QUEUE] / TASKS_PER_ENQUEUE)
        return Rates(pushes / seconds, enqueues / seconds)

    async def generate(self, rates: Rates, seconds: float) -> None:
        """Let pushes and enqueues arrive at these rates, and wait until all of them are answered."""
        await asyncio.gather(
            self.pushes.generate_arrivals(rates.pushes, seconds),
            self.enqueues.generate_arrivals(rates.enqueues, seconds),
        )

    async def finish(self) -> None:
        """Wait for the last responses. Raises RuntimeError if the broker responded with an error."""
        await self.pushes.finish()
        await self.enqueues.finish()
        await self._http.aclose()

    async def read_backlog(self) -> tuple[int, int]:
        """Return the unfinished messages of the slowest group of each queue, and the unfinished tasks."""
        messages = 0
        for queue in GROUPS:
            response = await self._call("GET", f"/api/v1/resources/queues/{queue}?limit=1")
            messages += response["depth"] + response["running"]
        tasks = await self._call("GET", f"/api/v1/run-queues/{TASK_QUEUE}")
        return messages, tasks["depth"] + tasks["delayed"] + tasks["running"]

    async def wait_until_drained(self, timeout_s: float) -> None:
        """Raises NotDrained if messages or tasks are unfinished after `timeout_s`."""
        messages, tasks = 0, 0

        async def is_drained() -> bool:
            nonlocal messages, tasks
            messages, tasks = await self.read_backlog()
            return not messages and not tasks

        if not await poll(is_drained, timeout_s):
            raise NotDrained(
                f"After {timeout_s:.0f} s, {messages} messages and {tasks} tasks are unfinished."
            )

    def _build_consumers(self) -> list[Consumer]:
        numbers = iter(range(1_000_000))

        def source() -> random.Random:
            return random.Random(f"{self._seed} {next(numbers)}")

        groups = [(queue, group) for queue, groups in GROUPS.items() for group in groups]
        consumers: list[Consumer] = [
            MessageConsumer(self._port, self.counts, source(), queue, group)
            for queue, group in groups
            for _ in range(CONSUMERS_PER_GROUP)
        ]
        workers = [TaskWorker(self._port, self.counts, source(), TASK_QUEUE) for _ in range(TASK_WORKERS)]
        return [*consumers, *workers]

    async def _operate(self) -> None:
        """Requeue and purge all dead letters in turns."""
        dead_tasks = f"/api/v1/run-queues/{TASK_QUEUE}/dead-letters"
        rounds = (
            (("POST", "/api/v1/dlq/requeue"), ("POST", f"{dead_tasks}/redrive")),
            (("POST", "/api/v1/dlq/purge"), ("DELETE", dead_tasks)),
        )
        for calls in itertools.cycle(rounds):
            await asyncio.sleep(OPERATOR_INTERVAL_S)
            for method, path in calls:
                try:
                    await self._call(method, path, {"all": True})
                except httpx.HTTPError:
                    self.counts["operator calls failed"] += 1

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = await self._http.request(method, path, json=body)
        response.raise_for_status()
        return response.json()


def _push_body(queues: list[str], payloads: list[str]) -> Callable[[Producer, int], bytes]:
    """Every second push names transaction ids, which the broker checks for duplicates."""

    def build(producer: Producer, number: int) -> bytes:
        queue = queues[producer.number % len(queues)]
        target = f'"queue":"{queue}","partition":"p{producer.partition}"'
        first = number * MESSAGES_PER_PUSH
        items = (
            f"{{{target},{_transaction_id(producer, n) if number % 2 else ''}"
            f'"payload":{payloads[(n + producer.number * 7) % len(payloads)]}}}'
            for n in range(first, first + MESSAGES_PER_PUSH)
        )
        return f'{{"items":[{",".join(items)}]}}'.encode()

    return build


def _transaction_id(producer: Producer, number: int) -> str:
    return f'"transactionId":"{producer.number}-{number}",'


def _enqueue_body(payloads: list[str]) -> Callable[[Producer, int], bytes]:
    """Every task has an idempotency key."""

    def build(producer: Producer, number: int) -> bytes:
        first = number * TASKS_PER_ENQUEUE
        tasks = (
            f'{{"payload":{payloads[n % len(payloads)]},"idempotencyKey":"{producer.number}-{n}",'
            f'"maxAttempts":3,"priority":{n % 10}}}'
            for n in range(first, first + TASKS_PER_ENQUEUE)
        )
        return f'{{"tasks":[{",".join(tasks)}]}}'.encode()

    return build
