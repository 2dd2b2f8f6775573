"""JournalDepth, work in flight, limits and ages of queues, and what happened to tasks, for `GET /metrics`: a bounded
number of labels."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, Table
from penstock.api.services import Services
from penstock.durable import log
from penstock.errors import PenstockError
from penstock.model import DEFAULT_SCOPE
from penstock.runqueue.task_model import QueueState
from penstock.telemetry import OVERFLOW

DEADLINE_S = 2.0
MOST_LABELS = 1_000
MOST_QUEUES = 10_000


class Labels:
    """The first names have labels of their own; what queues beyond the limit hold is put together."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._names: set[tuple[str, str]] = set()
        self.depth: Samples = {}
        self.inflight: Samples = {}
        self.age: Samples = {}
        self.limit: Samples = {}
        self.delayed: Samples = {}
        self.tasks: Samples = {}

    def add(self, queue: str, group: str, depth: int, running: int, age_s: float | None) -> None:
        key = (queue, group)
        if len(self._names) >= self._most:
            if group:
                return  # the queue as a whole speaks for its groups
            key = (OVERFLOW, "")
        self._names.add(key)
        self.depth[key] = self.depth.get(key, 0) + depth
        self.inflight[key] = self.inflight.get(key, 0) + running
        if age_s is not None:
            self.age[key] = max(self.age.get(key, 0.0), age_s)

    def add_tasks(self, state: QueueState) -> None:
        """A run queue.

        Those beyond the limit have no limit of their own and no counters: a sum of counters would go back
        when one of the queues is deleted.
        """
        age_s = state.oldest_age_ms / 1000 if state.eligible else None
        self.add(state.queue, "", state.eligible, state.running, age_s)
        if (state.queue, "") not in self._names:
            self.delayed[(OVERFLOW,)] = self.delayed.get((OVERFLOW,), 0) + state.delayed
            return
        self.delayed[(state.queue,)] = state.delayed
        if state.limit is not None:
            self.limit[(state.queue,)] = state.limit
        self.tasks |= {(state.queue, event): count for event, count in state.counted.items()}

    def table(self) -> Table:
        return {
            telemetry.QUEUE_DEPTH: self.depth,
            telemetry.QUEUE_INFLIGHT: self.inflight,
            telemetry.QUEUE_OLDEST_AGE: self.age,
            telemetry.QUEUE_CONCURRENCY_LIMIT: self.limit,
            telemetry.QUEUE_DELAYED: self.delayed,
            telemetry.QUEUE_TASKS: self.tasks,
        }


async def queue_samples(services: Services) -> Table:
    """Queues of both kinds; without those whose server is away or slow."""
    durable, tasks = await asyncio.gather(_durable(services), _run_queues(services))
    labels = Labels()
    now = time.time()
    for row in durable:
        oldest = row["oldest_at"]
        age_s = None if oldest is None else max(0.0, now - oldest.timestamp())
        labels.add(row["queue"], row["group_name"], row["depth"], row["running"], age_s)
    for state in tasks:
        labels.add_tasks(state)
    return labels.table()


async def _durable(services: Services) -> list[Any]:
    try:
        return await asyncio.wait_for(
            log.named_gauges(services.database, DEFAULT_SCOPE, MOST_QUEUES), DEADLINE_S
        )
    except (TimeoutError, PenstockError):
        return []  # the database is away or slow, which /health says


async def _run_queues(services: Services) -> list[QueueState]:
    try:
        return await asyncio.wait_for(services.run_queues.queues(DEFAULT_SCOPE), DEADLINE_S)
    except (TimeoutError, PenstockError):
        return []
