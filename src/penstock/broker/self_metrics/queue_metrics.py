"""Count queue operations in memory, and emit the counts and gauges twice a second.

Operations only add to plain numbers. A background task turns these into one event per queue and group, and
reads the gauges of the queues that changed. So an idle queue costs next to nothing, and a busy one the same
however many messages it moves. The counts carry the time of the operations. A broker that is killed loses the
counts of the last half second, until `count_repair` finds the difference to the totals of PostgreSQL.

The gauges of an environment need a query over all its queues, so they are read less often: five seconds
after the last time, or later if the query took long, and always once more after the last change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from penstock.background import BackgroundTask
from penstock.clock import Clock, now_ms, system_clock
from penstock.definitions import QUEUE
from penstock.durable.pool import Database
from penstock.durable.queue_gauges import GaugeReader
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.emit_batch import Counts
from penstock.streams.emitted_totals import aligned_field, total_field
from penstock.streams.emitter import Emitter

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
ENVIRONMENT_INTERVAL_S = 5.0
MAX_ENVIRONMENT_SHARE = 0.01
"""Largest share of the time that reading environment gauges may take, however many queues they have."""

SAMPLES_PER_EVENT = 500

ExchangeGauges = Callable[[Scope, int, int, int | None], Awaitable[tuple[int, int, int | None]]]
"""Passes depth, running and oldest wait time (ms) of an environment's messages to the run queues; returns
those of its tasks.
"""

COUNTER_BY_OUTCOME = {"completed": "ak", "failed": "nk", "retry": "rl", "dead": "dl"}


@dataclass(slots=True)
class QueueTally:
    """Counts of one queue and group since the last event, all of the same bucket of the metric."""

    at_ms: int
    """Time of the first counted operation."""
    counters: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    acked: int = 0
    """Messages that a consumer acked or nacked, with any outcome."""
    wait_times_ms: list[int] = field(default_factory=list)
    run_times_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RequestCounters:
    """Requests that were executed since this process started."""

    push: int = 0
    pop: int = 0
    ack: int = 0
    transaction: int = 0
    transaction_messages: int = 0


TOTAL_COUNTERS = ("eq", "ak")
"""Counters of which PostgreSQL keeps totals: pushed and completed messages."""

TallyKey = tuple[Scope, int, str, str]
"""Scope, id and name of the queue, and group."""

TallyObserver = Callable[[Scope, str, str, QueueTally], None]
"""Receives every tally: scope, queue, group and counts."""


class QueueMetrics(BackgroundTask):
    """Counts the operations of the broker and emits the counts.

    Run queues emit the gauges of environments too. With `exchange_gauges` each side knows the numbers of
    the other, so both emit the sum.
    """

    task_name = "queue metrics"

    def __init__(
        self,
        emitter: Emitter,
        database: Database,
        clock: Clock = system_clock,
        exchange_gauges: ExchangeGauges | None = None,
    ) -> None:
        self._emitter = emitter
        self._gauges = GaugeReader(database)
        self._clock = clock
        self.exchange_gauges = exchange_gauges
        self.requests = RequestCounters()
        self.observer: TallyObserver | None = None
        self._tallies: dict[TallyKey, QueueTally] = {}
        self._tallies_until_s = 0.0
        """End of the bucket to which the current tallies belong."""
        self._closed_tallies: list[tuple[TallyKey, QueueTally]] = []
        self._changed_queues: dict[int, tuple[Scope, str]] = {}
        self.counted_queues: dict[int, tuple[Scope, str]] = {}
        """Queues with counted operations, by id, since the last comparison with PostgreSQL took them."""
        self._changed_environments: set[Scope] = set()
        self.environments_due_s = 0.0
        """When the gauges of environments may be read again, by the monotonic clock."""

    def count_pushed(self, scope: Scope, queue_id: int, queue: str, messages: int) -> None:
        self._tally(scope, queue_id, queue, "").counters["eq"] += messages

    def count_popped(
        self, scope: Scope, queue_id: int, queue: str, group: str, wait_times_ms: list[int]
    ) -> None:
        tally = self._tally(scope, queue_id, queue, group)
        tally.counters["dq"] += len(wait_times_ms)
        tally.wait_times_ms.extend(wait_times_ms)

    def count_acked(
        self, scope: Scope, queue_id: int, queue: str, group: str, outcome: str, run_times_ms: list[int]
    ) -> None:
        tally = self._tally(scope, queue_id, queue, group)
        tally.counters[COUNTER_BY_OUTCOME[outcome]] += len(run_times_ms)
        tally.acked += len(run_times_ms)
        tally.run_times_ms.extend(run_times_ms)

    def count_expired(self, scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        self._tally(scope, queue_id, queue, group).counters["ex"] += messages

    def count_dead(self, scope: Scope, queue_id: int, queue: str, group: str, messages: int = 1) -> None:
        """Count messages that were declared dead without a lease, so they have no run time."""
        self._tally(scope, queue_id, queue, group).counters["dl"] += messages

    def mark_changed(self, scope: Scope, queue_id: int, queue: str) -> None:
        """Read the queue's gauges at the next flush: they may have changed without a counted operation."""
        self._changed_queues[queue_id] = (scope, queue)

    def emit_deleted(self, scope: Scope, queue_id: int, queue: str, groups: Iterable[str]) -> None:
        """Emit gauges of 0 for deleted groups of a queue; the empty group stands for the queue.

        Otherwise the pipeline would carry their last value forward for ever. Their emitted totals are
        removed.
        """
        for group in groups:
            counts: Counts = (total_field(queue_id, group, "ak"), 0)
            if group == "":
                self._changed_queues.pop(queue_id, None)
                counts = (total_field(queue_id, group, "eq"), 0, aligned_field(queue_id), 0)
            self._send(scope, queue, group, {"ql": 0, "cc": 0, "age": 0}, counts=counts)
        self._changed_environments.add(scope)

    async def stop(self) -> None:
        """Stop, and emit what was counted until now."""
        if self.is_started:
            await super().stop()
            self.environments_due_s = 0.0
            await self.flush()

    def close_tallies(self) -> None:
        """Close the current tallies: the observer receives them now, and the next flush emits them."""
        tallies, self._tallies = self._tallies, {}
        if self.observer is not None:
            for (scope, _, queue, group), tally in tallies.items():
                self.observer(scope, queue, group, tally)
        if self._emitter.enabled:
            self._closed_tallies += tallies.items()

    async def flush(self) -> None:
        """Emit the counts, the gauges of changed queues, and those of environments when they are due."""
        self.close_tallies()
        if not self._emitter.enabled:
            self._changed_queues = {}
            return
        tallies, self._closed_tallies = self._closed_tallies, []
        for key, tally in tallies:
            self._emit_tally(key, tally)
        try:
            await self._flush_queue_gauges()
            if self._changed_environments and time.monotonic() >= self.environments_due_s:
                await self._flush_environment_gauges()
        except PenstockError as error:
            logger.warning("The gauges of queues were not read: %s", error.detail)

    async def _flush_queue_gauges(self) -> None:
        changed, self._changed_queues = self._changed_queues, {}
        if not changed:
            return
        self._changed_environments.update(scope for scope, _ in changed.values())
        try:
            rows = await self._gauges.of_queues(list(changed))
        except BaseException:  # also a cancellation by `stop`: read these queues at the next flush
            self._changed_queues = {**changed, **self._changed_queues}
            raise
        # A queue that was deleted and created again has two ids and one name; the newer id is emitted last.
        for row in sorted(rows, key=attrgetter("queue_id")):
            scope, queue = changed[row.queue_id]
            gauges: dict[str, str | int] = {
                "ql": row.depth,
                "cc": row.running,
                "age": self._age_ms(row.oldest_at),
            }
            self._send(scope, queue, row.group_name, gauges)

    async def _flush_environment_gauges(self) -> None:
        scopes, self._changed_environments = self._changed_environments, set()
        started_s = time.monotonic()
        try:
            rows = await self._gauges.of_environments(list(scopes))
        except BaseException:
            self._changed_environments |= scopes
            raise
        finally:
            took_s = time.monotonic() - started_s
            self.environments_due_s = started_s + max(ENVIRONMENT_INTERVAL_S, took_s / MAX_ENVIRONMENT_SHARE)
        for row in rows:
            scope = Scope(row.organization, row.project, row.environment)
            depth, running, oldest_ms = row.depth, row.running, _to_ms(row.oldest_at)
            if self.exchange_gauges is not None:
                try:
                    tasks, running_tasks, oldest_task_ms = await self.exchange_gauges(
                        scope, depth, running, oldest_ms
                    )
                except (
                    PenstockError
                ):  # the emitter logs that Redis is unreachable; a partial sum is not emitted
                    self._changed_environments.add(scope)
                    continue
                depth, running = depth + tasks, running + running_tasks
                oldest_ms = min(
                    (time_ms for time_ms in (oldest_ms, oldest_task_ms) if time_ms is not None), default=None
                )
            age_ms = 0 if oldest_ms is None else max(0, now_ms(self._clock) - oldest_ms)
            self._send(scope, "", "", {"eql": depth, "ecc": running, "eage": age_ms})

    def _age_ms(self, oldest_at: datetime | None) -> int:
        return max(0, int((self._clock() - oldest_at.timestamp()) * 1000)) if oldest_at else 0

    def _tally(self, scope: Scope, queue_id: int, queue: str, group: str) -> QueueTally:
        now_s = self._clock()
        if now_s >= self._tallies_until_s:
            self.close_tallies()
            self._tallies_until_s = (now_s * 1000 // QUEUE.bucket_ms + 1) * QUEUE.bucket_ms / 1000
        self._changed_queues[queue_id] = (scope, queue)
        key = (scope, queue_id, queue, group)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = QueueTally(int(now_s * 1000))
        return tally

    def _emit_tally(self, key: TallyKey, tally: QueueTally) -> None:
        scope, queue_id, queue, group = key
        fields: dict[str, str | int] = dict(tally.counters)
        counts: list[str | int] = []
        for counter in TOTAL_COUNTERS:
            if amount := tally.counters.get(counter, 0):
                counts += (total_field(queue_id, group, counter), amount)
                self.counted_queues[queue_id] = (scope, queue)
        for start in range(0, max(len(tally.wait_times_ms), len(tally.run_times_ms), 1), SAMPLES_PER_EVENT):
            if wait_times_ms := tally.wait_times_ms[start : start + SAMPLES_PER_EVENT]:
                fields["wt"] = ",".join(map(str, wait_times_ms))
            if run_times_ms := tally.run_times_ms[start : start + SAMPLES_PER_EVENT]:
                fields["rt"] = ",".join(map(str, run_times_ms))
            self._send(scope, queue, group, fields, tally.at_ms, tuple(counts))
            fields, counts = {}, []

    def _send(
        self,
        scope: Scope,
        queue: str,
        group: str,
        fields: dict[str, str | int],
        at_ms: int | None = None,
        counts: Counts = (),
    ) -> None:
        dimensions = event_dimensions(scope, queue, group, now_ms(self._clock) if at_ms is None else at_ms)
        # Events of an environment keep their order too.
        self._emitter.emit(QUEUE, dimensions | fields, queue or scope.environment, counts)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.flush()
            except Exception:
                # An error in one flush must not end the metrics.
                logger.exception("Queue metrics were not emitted")


def event_dimensions(scope: Scope, queue: str, group: str, at_ms: int) -> dict[str, str | int]:
    """Return the fields that all events of the metric have."""
    return {
        "org": scope.organization,
        "proj": scope.project,
        "env": scope.environment,
        "queue": queue,
        "group": group,
        "t": at_ms,
    }


def _to_ms(timestamp: datetime | None) -> int | None:
    return None if timestamp is None else int(timestamp.timestamp() * 1000)
