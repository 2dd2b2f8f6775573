"""Compare the counts that entered the streams with the totals of PostgreSQL, and emit what is missing.

A broker that is killed loses the counts that it has not emitted yet, and a full buffer drops events. Both are
invisible to the pipeline. PostgreSQL keeps totals of pushed and completed messages in the transactions that
move them, and Redis the totals of the emitted counts, so the difference is what was lost.

Totals move all the time, and brokers emit their counts later than PostgreSQL commits them. So a queue is
judged when both totals have not changed between two readings. The missing counts enter the stream as one
event, together with the correction of the total, so that several brokers do not repair the same difference.
The event has the time of the repair, because the time of the lost operations is unknown.

The gauges of a queue are emitted once more when it has become idle, and those of all queues after a start, at
every interval, and after events were dropped. So no depth stays wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from redis.exceptions import RedisError

from penstock.background import BackgroundTask
from penstock.broker.self_metrics.queue_metrics import QueueMetrics, event_dimensions
from penstock.clock import Clock, now_ms, system_clock
from penstock.definitions import QUEUE
from penstock.durable.count_totals import CountTotals
from penstock.durable.pool import Database
from penstock.errors import PenstockError
from penstock.model import Scope
from penstock.streams.emitted_totals import EmittedTotals, aligned_field, total_field
from penstock.streams.emitter import Emitter

logger = logging.getLogger(__name__)

SETTLE_S = 15.0
"""Time between two readings: longer than an emitter takes to send its counts after an outage of Redis."""

SCAN_INTERVAL_S = 600.0
QUEUES_PER_ROUND = 1_000


@dataclass(frozen=True, slots=True)
class _Reading:
    """The totals of one queue by group: pushed (empty group) or completed, and the emitted ones."""

    stored: Mapping[str, int]
    emitted: Mapping[str, bytes | None]
    is_aligned: bool


class CountRepair(BackgroundTask):
    """Compares the counts of queues that changed, and of all queues after a start and at every interval.

    `repaired` is the number of messages whose count was missing.
    """

    task_name = "count repair"

    def __init__(
        self,
        metrics: QueueMetrics,
        emitter: Emitter,
        database: Database,
        *,
        settle_s: float = SETTLE_S,
        scan_interval_s: float = SCAN_INTERVAL_S,
        clock: Clock = system_clock,
    ) -> None:
        self.repaired = 0
        self._metrics = metrics
        self._emitter = emitter
        self._stored = CountTotals(database)
        self._settle_s = settle_s
        self._scan_interval_s = scan_interval_s
        self._clock = clock
        self._watched: dict[int, tuple[Scope, str]] = {}
        self._readings: dict[int, _Reading] = {}
        self._scan_due_s = 0.0
        self._dropped = 0
        self._is_warned = False

    async def scan(self) -> None:
        """Emit the gauges of all queues, and compare their counts in the next rounds."""
        last_id = 0
        while queues := await self._stored.queues_after(last_id, QUEUES_PER_ROUND):
            for queue in queues:
                self._metrics.mark_changed(queue.scope, queue.queue_id, queue.queue)
                self._watched[queue.queue_id] = (queue.scope, queue.queue)
            last_id = queues[-1].queue_id
            await self._metrics.flush()

    async def compare(self) -> None:
        """Read the totals of watched queues, and repair those that are as they were at the last reading."""
        await self._metrics.flush()
        counted, self._metrics.counted_queues = self._metrics.counted_queues, {}
        self._watched |= counted
        totals = EmittedTotals(self._emitter.connect())
        first_id = await totals.begin(await self._stored.newest_queue_id())
        queues = dict(islice(self._watched.items(), QUEUES_PER_ROUND))
        readings = await self._read(totals, first_id, list(queues)) if queues else {}
        for queue_id, reading in readings.items():
            scope, queue = queues[queue_id]
            is_settled = self._readings.pop(queue_id, None) == reading
            if is_settled:
                is_settled = await self._settle(totals, scope, queue_id, queue, reading)
            del self._watched[queue_id]
            if not is_settled:
                self._readings[queue_id] = reading
                self._watched[queue_id] = (scope, queue)  # at the end: the others come first

    async def _read(self, totals: EmittedTotals, first_id: int, queue_ids: list[int]) -> dict[int, _Reading]:
        stored: dict[int, dict[str, int]] = {queue_id: {"": 0} for queue_id in queue_ids}
        for total in await self._stored.of_queues(queue_ids):
            stored[total.queue_id][total.group_name] = total.messages
        keys = [(queue_id, group) for queue_id, groups in stored.items() for group in groups]
        fields = [_total_field(queue_id, group) for queue_id, group in keys]
        values = await totals.read([*fields, *map(aligned_field, queue_ids)])
        emitted = dict(zip(keys, values, strict=False))
        aligned = dict(zip(queue_ids, values[len(keys) :], strict=True))
        return {
            queue_id: _Reading(
                groups,
                {group: emitted[queue_id, group] for group in groups},
                queue_id > first_id or aligned[queue_id] is not None,
            )
            for queue_id, groups in stored.items()
        }

    async def _settle(
        self, totals: EmittedTotals, scope: Scope, queue_id: int, queue: str, reading: _Reading
    ) -> bool:
        """Correct the emitted totals of a queue, and emit its gauges again; False if a total has changed.

        The totals of a queue that is older than their hash are unknown. They are set without an event.
        """
        self._metrics.mark_changed(scope, queue_id, queue)
        for group, messages in reading.stored.items():
            expected = reading.emitted[group]
            missing = messages - int(expected or 0)
            if not missing:
                continue
            event = None
            if missing > 0 and reading.is_aligned:
                counter = "ak" if group else "eq"
                event = event_dimensions(scope, queue, group, now_ms(self._clock)) | {counter: missing}
            field = _total_field(queue_id, group)
            if not await totals.correct(field, expected, missing, QUEUE, queue, event):
                return False
            if reading.is_aligned:
                self._report(queue, group, missing)
        if not reading.is_aligned:
            await totals.mark_aligned(queue_id)
        return True

    def _report(self, queue: str, group: str, missing: int) -> None:
        name = f"completed messages of queue {queue!r}, group {group!r}" if group else f"pushes to {queue!r}"
        if missing > 0:
            self.repaired += missing
            logger.warning("The metrics lacked %d %s; they are counted now", missing, name)
        else:
            logger.warning("The metrics have counted %d %s too many", -missing, name)

    async def _run(self) -> None:
        if not self._emitter.enabled:
            return
        while not self._is_stopping:
            try:
                await self._run_round()
            except (PenstockError, RedisError, OSError) as error:
                self._readings.clear()  # counts may wait in the emitters of all brokers
                if not self._is_warned:
                    logger.warning("Emitted counts are not compared with PostgreSQL now: %s", error)
                self._is_warned = True
            except Exception:
                logger.exception("Emitted counts were not compared with PostgreSQL")
            else:
                self._is_warned = False
            await asyncio.sleep(self._settle_s)

    async def _run_round(self) -> None:
        if not self._emitter.active:
            await EmittedTotals(self._emitter.connect()).clear()
            self._readings.clear()
            return
        has_dropped = self._emitter.dropped > self._dropped and not self._emitter.pending
        if has_dropped or time.monotonic() >= self._scan_due_s:
            self._dropped = self._emitter.dropped
            await self.scan()
            self._scan_due_s = time.monotonic() + self._scan_interval_s
        await self.compare()


def _total_field(queue_id: int, group: str) -> str:
    return total_field(queue_id, group, "ak" if group else "eq")
