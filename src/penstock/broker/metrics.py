"""What queue operations tell the metrics: counted in memory, emitted twice a second.

Operations only add to plain numbers here. A background task turns them into one event per queue and
group, and reads the gauges of the queues that were touched, so an idle queue costs nothing and a busy
one costs the same however many messages it moves. A broker that is killed loses at most the half second
it had not emitted.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from penstock.clock import Clock, now_ms, system_clock
from penstock.definitions import QUEUE
from penstock.durable import log
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.emitter import Emitter

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
SAMPLES_PER_EVENT = 500

QueueKey = tuple[Scope, str]
COUNTERS = {"completed": "ak", "failed": "nk", "retry": "nk", "dead": "dl"}


@dataclass(slots=True)
class Tally:
    """What happened to one queue and group since the last event."""

    counters: dict[str, int] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    def add(self, counter: str, amount: int) -> None:
        self.counters[counter] = self.counters.get(counter, 0) + amount


class QueueMetrics:
    """Counts what the broker does and emits it. `start` and `stop` may be called twice."""

    def __init__(self, emitter: Emitter, database: Database, clock: Clock = system_clock) -> None:
        self._emitter = emitter
        self._database = database
        self._clock = clock
        self._tallies: dict[tuple[Scope, str, str], Tally] = {}
        self._touched: dict[int, QueueKey] = {}
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
        tally.runs.extend(runs_ms)

    def expired(self, scope: Scope, queue_id: int, queue: str, group: str, messages: int) -> None:
        self._tally(scope, queue_id, queue, group).add("ex", messages)

    def buried(self, scope: Scope, queue_id: int, queue: str, group: str) -> None:
        """A message was declared dead outside a lease: it has no run time."""
        self._tally(scope, queue_id, queue, group).add("dl", 1)

    def touched(self, scope: Scope, queue_id: int, queue: str) -> None:
        """The queue's gauges may have changed without anything to count."""
        self._touched[queue_id] = (scope, queue)

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="queue metrics")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await self.flush()

    async def flush(self) -> None:
        """Emit what was counted and the gauges of what was touched."""
        tallies, self._tallies = self._tallies, {}
        touched, self._touched = self._touched, {}
        for (scope, queue, group), tally in tallies.items():
            self._emit(scope, queue, group, tally)
        if touched:
            try:
                rows = await log.gauges(self._database, list(touched))
            except PenstockError as error:
                logger.warning("gauges not read: %s", error.detail)
                self._touched = {**touched, **self._touched}
                return
            moment = self._clock()
            for row in rows:
                scope, queue = touched[row["queue_id"]]
                oldest = row["oldest_at"]
                age_ms = max(0, int((moment - oldest.timestamp()) * 1000)) if oldest else 0
                gauges = {"ql": row["depth"], "cc": row["running"], "age": age_ms}
                self._send(scope, queue, row["group_name"], gauges)

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
        self._emitter.emit(QUEUE, dimensions | fields, shard_key=queue)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.flush()
            except Exception:
                # Metrics must outlive whatever goes wrong with one round of them.
                logger.exception("queue metrics were not emitted")
