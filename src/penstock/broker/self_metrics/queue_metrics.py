"""What queue operations tell the metrics: counted in memory, emitted twice a second.

Operations only add to plain numbers here. A background task turns them into one event per queue and
group, and reads the gauges of the queues that were touched, so an idle queue costs nothing and a busy
one costs the same however many messages it moves. A broker that is killed loses at most the half second
it had not emitted.

The gauges of environments take a look at every queue in them, so they are read less often: five seconds after
the last time, or later if that had taken long, and always once more after the last touch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from penstock.clock import Clock, now_ms, system_clock
from penstock.definitions import QUEUE
from penstock.durable.pool import Database
from penstock.durable.queue_gauges import GaugeReader
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.emitter import Emitter

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
ENVIRONMENT_INTERVAL_S = 5.0
ENVIRONMENT_SHARE = 0.01
"""The part of the time that reading the gauges of environments may take, however many queues they have."""

SAMPLES_PER_EVENT = 500

QueueKey = tuple[Scope, str]
Share = Callable[[Scope, int, int, int | None], Awaitable[tuple[int, int, int | None]]]
"""Tells the run queues depth, running and since when (ms) the oldest of an environment's messages waits;
answers the same of its tasks."""

COUNTERS = {"completed": "ak", "failed": "nk", "retry": "nk", "dead": "dl"}


@dataclass(slots=True)
class Tally:
    """What happened to one queue and group since the last event."""

    counters: dict[str, int] = field(default_factory=dict)
    settled: int = 0
    """Messages a consumer said something about, whatever it said."""
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    def add(self, counter: str, amount: int) -> None:
        self.counters[counter] = self.counters.get(counter, 0) + amount


@dataclass(slots=True)
class Requests:
    """Requests that were answered since this process started."""

    push: int = 0
    pop: int = 0
    ack: int = 0
    transaction: int = 0
    transaction_messages: int = 0


Observer = Callable[[Scope, str, str, Tally], None]
"""Is told of every tally: scope, queue, group and what happened."""


class QueueMetrics:
    """Counts what the broker does and emits it. `start` and `stop` may be called twice.

    Run queues emit the gauges of environments too. With `share` each side knows the other's numbers, so both
    speak for the whole.
    """

    def __init__(
        self,
        emitter: Emitter,
        database: Database,
        clock: Clock = system_clock,
        share: Share | None = None,
    ) -> None:
        self._emitter = emitter
        self._database = database
        self._clock = clock
        self._share = share
        self.requests = Requests()
        self.observer: Observer | None = None
        self._tallies: dict[tuple[Scope, str, str], Tally] = {}
        self._taken: list[tuple[tuple[Scope, str, str], Tally]] = []
        self._touched: dict[int, QueueKey] = {}
        self._environments: set[Scope] = set()
        self._environments_due_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def pushed(self, scope: Scope, queue_id: int, queue: str, messages: int) -> None:
        self._tally(scope, queue_id, queue, "").add("eq", messages)

    def popped(self, scope: Scope, queue_id: int, queue: str, group: str, waits_ms: list[int]) -> None:
        tally = self._tally(scope, queue_id, queue, group)
        tally.add("dq", len(waits_ms))
        tally.waits.extend(waits_ms)

    def settled(
        self, scope: Scope, queue_id: int, queue: str, group: str, outcome: str, runs_ms: list[int]
    ) -> None:
        tally = self._tally(scope, queue_id, queue, group)
        tally.add(COUNTERS[outcome], len(runs_ms))
        tally.settled += len(runs_ms)
        tally.runs.extend(runs_ms)

    def expired(self, scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        self._tally(scope, queue_id, queue, group).add("ex", messages)

    def buried(self, scope: Scope, queue_id: int, queue: str, group: str) -> None:
        """A message was declared dead outside a lease: it has no run time."""
        self._tally(scope, queue_id, queue, group).add("dl", 1)

    def touched(self, scope: Scope, queue_id: int, queue: str) -> None:
        """The queue's gauges may have changed without anything to count."""
        self._touched[queue_id] = (scope, queue)

    def gone(self, scope: Scope, queue_id: int, queue: str, groups: Iterable[str]) -> None:
        """Groups of a queue do not exist any more; the empty group stands for the queue.

        Their gauges end at 0: the last known value of what is deleted would be carried on for ever.
        """
        for group in groups:
            if group == "":
                self._touched.pop(queue_id, None)
            self._send(scope, queue, group, {"ql": 0, "cc": 0, "age": 0})
        self._environments.add(scope)

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="queue metrics")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._environments_due_at = 0.0
            await self.flush()

    def take(self) -> None:
        """Close what was counted so far: the observer is told of it now, and it is emitted next."""
        tallies, self._tallies = self._tallies, {}
        if self.observer is not None:
            for (scope, queue, group), tally in tallies.items():
                self.observer(scope, queue, group, tally)
        if self._emitter.enabled:
            self._taken += tallies.items()

    async def flush(self) -> None:
        """Emit what was counted, the gauges of what was touched, and those of environments when due."""
        self.take()
        if not self._emitter.enabled:
            self._touched = {}
            return
        taken, self._taken = self._taken, []
        for (scope, queue, group), tally in taken:
            self._emit(scope, queue, group, tally)
        try:
            await self._flush_gauges()
            if self._environments and time.monotonic() >= self._environments_due_at:
                await self._flush_environments()
        except PenstockError as error:
            logger.warning("gauges not read: %s", error.detail)

    async def _flush_gauges(self) -> None:
        touched, self._touched = self._touched, {}
        if not touched:
            return
        self._environments.update(scope for scope, _ in touched.values())
        try:
            rows = await GaugeReader(self._database).of_queues(list(touched))
        except BaseException:  # also when `stop` cuts it short: what was touched is read later
            self._touched = {**touched, **self._touched}
            raise
        # A queue that was deleted and made again has two ids and one name; the newer one has the last word.
        for row in sorted(rows, key=attrgetter("queue_id")):
            scope, queue = touched[row.queue_id]
            gauges: dict[str, str | int] = {"ql": row.depth, "cc": row.running, "age": self._age_ms(row.oldest_at)}
            self._send(scope, queue, row.group_name, gauges)

    async def _flush_environments(self) -> None:
        scopes, self._environments = self._environments, set()
        started = time.monotonic()
        try:
            rows = await GaugeReader(self._database).of_environments(list(scopes))
        except BaseException:
            self._environments |= scopes
            raise
        finally:
            took_s = time.monotonic() - started
            self._environments_due_at = started + max(ENVIRONMENT_INTERVAL_S, took_s / ENVIRONMENT_SHARE)
        for row in rows:
            scope = Scope(row.organization, row.project, row.environment)
            depth, running, oldest_ms = row.depth, row.running, _ms(row.oldest_at)
            if self._share is not None:
                try:
                    tasks, running_tasks, task_ms = await self._share(scope, depth, running, oldest_ms)
                except PenstockError:  # Redis is away, which the emitter says; a part is not the whole
                    self._environments.add(scope)
                    continue
                depth, running = depth + tasks, running + running_tasks
                oldest_ms = min((at for at in (oldest_ms, task_ms) if at is not None), default=None)
            age_ms = 0 if oldest_ms is None else max(0, now_ms(self._clock) - oldest_ms)
            self._send(scope, "", "", {"eql": depth, "ecc": running, "eage": age_ms})

    def _age_ms(self, oldest_at: datetime | None) -> int:
        return max(0, int((self._clock() - oldest_at.timestamp()) * 1000)) if oldest_at else 0

    def _tally(self, scope: Scope, queue_id: int, queue: str, group: str) -> Tally:
        self._touched[queue_id] = (scope, queue)
        key = (scope, queue, group)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally()
        return tally

    def _emit(self, scope: Scope, queue: str, group: str, tally: Tally) -> None:
        fields: dict[str, str | int] = dict(tally.counters)
        for start in range(0, max(len(tally.waits), len(tally.runs), 1), SAMPLES_PER_EVENT):
            if waits := tally.waits[start : start + SAMPLES_PER_EVENT]:
                fields["wt"] = ",".join(map(str, waits))
            if runs := tally.runs[start : start + SAMPLES_PER_EVENT]:
                fields["rt"] = ",".join(map(str, runs))
            self._send(scope, queue, group, fields)
            fields = {}

    def _send(self, scope: Scope, queue: str, group: str, fields: dict[str, str | int]) -> None:
        dimensions: dict[str, str | int] = {
            "org": scope.organization,
            "proj": scope.project,
            "env": scope.environment,
            "queue": queue,
            "group": group,
            "t": now_ms(self._clock),
        }
        # What speaks for an environment keeps its order too.
        self._emitter.emit(QUEUE, dimensions | fields, shard_key=queue or scope.environment)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.flush()
            except Exception:
                # Metrics must outlive whatever goes wrong with one round of them.
                logger.exception("queue metrics were not emitted")


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
