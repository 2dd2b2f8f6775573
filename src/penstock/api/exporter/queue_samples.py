"""Samples of all queues for `GET /metrics`: depth, work in flight, limits, ages and task counters.

The number of queues with labels of their own is bounded; the other queues share one label.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.api.services import Services
from penstock.broker.durable_store import NamedQueueGauge
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.runqueue.task_model import QueueState
from penstock.telemetry import OVERFLOW

TIMEOUT_S = 5.0
"""Half of the time that Prometheus waits for a scrape by default."""
MAX_LABELS = 1_000
MAX_QUEUES = 10_000


class BoundedQueueSamples:
    """Samples by environment, queue and group. Queues beyond `max_labels` are summed up under the label
    `OVERFLOW` of their environment."""

    def __init__(self, max_labels: int = MAX_LABELS) -> None:
        self._max_labels = max_labels
        self._labels: set[tuple[str, ...]] = set()
        self.depth: Samples = {}
        self.inflight: Samples = {}
        self.age: Samples = {}
        self.limit: Samples = {}
        self.delayed: Samples = {}
        self.paused: Samples = {}
        self.tasks: Samples = {}
        self.unsampled: Samples = {}

    def add(
        self, environment: Scope, queue: str, group: str, depth: int, running: int, age_s: float | None
    ) -> None:
        labels = (*environment, queue, group)
        if len(self._labels) >= self._max_labels:
            if group:
                return  # the samples of the whole queue include its groups
            labels = (*environment, OVERFLOW, "")
        self._labels.add(labels)
        self.depth[labels] = self.depth.get(labels, 0) + depth
        self.inflight[labels] = self.inflight.get(labels, 0) + running
        if age_s is not None:
            self.age[labels] = max(self.age.get(labels, 0.0), age_s)

    def add_pause(self, environment: Scope, queue: str, paused: bool) -> None:
        """Add whether a queue is paused, after its other samples; not for queues beyond the limit."""
        if (*environment, queue, "") in self._labels:
            self.paused[*environment, queue] = int(paused)

    def add_run_queue(self, environment: Scope, state: QueueState) -> None:
        """Add a run queue.

        Queues beyond the limit export no concurrency limit and no counters: a sum of counters would decrease
        when one of the queues is deleted.
        """
        age_s = state.oldest_age_ms / 1000 if state.eligible else None
        self.add(environment, state.queue, "", state.eligible, state.running, age_s)
        self.add_pause(environment, state.queue, state.paused)
        labels = (*environment, state.queue)
        if (*labels, "") not in self._labels:
            overflow = (*environment, OVERFLOW)
            self.delayed[overflow] = self.delayed.get(overflow, 0) + state.delayed
            return
        self.delayed[labels] = state.delayed
        if state.limit is not None:
            self.limit[labels] = state.limit
        self.tasks |= {(*labels, event): count for event, count in state.totals.items()}

    def table(self) -> SampleTable:
        return {
            telemetry.QUEUE_DEPTH: self.depth,
            telemetry.QUEUE_INFLIGHT: self.inflight,
            telemetry.QUEUE_OLDEST_AGE: self.age,
            telemetry.QUEUE_CONCURRENCY_LIMIT: self.limit,
            telemetry.QUEUE_DELAYED: self.delayed,
            telemetry.QUEUE_PAUSED: self.paused,
            telemetry.QUEUE_TASKS: self.tasks,
            telemetry.QUEUES_UNSAMPLED: self.unsampled,
        }


async def queue_samples(
    services: Services, environments: Sequence[Scope], max_queues: int = MAX_QUEUES
) -> SampleTable:
    """Samples of durable queues and run queues; without those whose server is unreachable or slow.

    Of the durable queues of an environment, the first `max_queues` that were created are read.
    """
    samples = BoundedQueueSamples()
    now = time.time()
    for environment in environments:
        (durable_queues, samples.unsampled[*environment,]), run_queues = await asyncio.gather(
            _durable_queues(services, environment, max_queues), _run_queues(services, environment)
        )
        for gauge in durable_queues:
            age_s = None if gauge.oldest_at is None else max(0.0, now - gauge.oldest_at.timestamp())
            samples.add(environment, gauge.queue, gauge.group_name, gauge.depth, gauge.running, age_s)
            samples.add_pause(environment, gauge.queue, gauge.paused)
        for state in run_queues:
            samples.add_run_queue(environment, state)
    return samples.table()


async def _durable_queues(
    services: Services, environment: Scope, max_queues: int
) -> tuple[list[NamedQueueGauge], int]:
    """Return the gauges of the oldest queues, and the number of the other ones."""
    gauges = services.broker.store.gauges
    try:
        async with asyncio.timeout(TIMEOUT_S):
            queues = await gauges.of_environment_queues(environment, max_queues)
            sampled = len({gauge.queue for gauge in queues})
            if sampled < max_queues:
                return queues, 0
            return queues, await gauges.count_environment_queues(environment) - sampled
    except (TimeoutError, PenstockError):
        return [], 0  # PostgreSQL is unreachable or slow; /health reports it


async def _run_queues(services: Services, environment: Scope) -> list[QueueState]:
    try:
        return await asyncio.wait_for(services.run_queues.list_queues(environment), TIMEOUT_S)
    except (TimeoutError, PenstockError):
        return []
