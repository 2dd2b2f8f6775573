"""Measure this broker process every second, and write the measurements as minute rows.

Operations add to plain numbers. Once a second a background task collects these numbers, reads connections,
pending requests and memory, and adds them to the current minute. Every few seconds it writes the row of the
current minute again, so a process that is killed loses only those seconds, and its row says which time it
covers. The next process writes rows of its own; the time in between is a gap.

A minute is kept until its row is written, at most an hour of them; the oldest minutes beyond that are
dropped and counted. Writing rows is not an operation and appears in none of the counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import psutil

from penstock.background import BackgroundTask
from penstock.batching import BatcherState
from penstock.broker.overload.load import LoadMonitor, SampleSummary
from penstock.broker.self_metrics.minute import MINUTE_S, WorkerIdentity, WorkerMinute
from penstock.broker.self_metrics.queue_counters import QueueCounters
from penstock.broker.self_metrics.queue_metrics import QueueMetrics, QueueTally
from penstock.broker.self_metrics.recent_seconds import ProcessSecond, RecentSeconds
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.clock import Clock, system_clock
from penstock.durable.pool import Database
from penstock.durable.worker_minutes import WorkerMinutes
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

WRITE_INTERVAL_S = 10.0
MAX_WRITE_SHARE = 0.01
"""Largest share of the time that building rows may take, however many queues there are."""
MAX_UNWRITTEN_MINUTES = 60
LAST_WRITE_TIMEOUT_S = 5.0
"""How long `stop` waits for the last row."""


class WorkerMetrics(BackgroundTask):
    """Measure this process until `stop`, which writes every minute or counts it in `dropped_minutes`.

    A stopped task does not start again.
    """

    task_name = "worker metrics"

    def __init__(
        self,
        identity: WorkerIdentity,
        database: Database,
        metrics: QueueMetrics,
        load: LoadMonitor,
        batchers: Mapping[str, BatcherState],
        count_parked_pops: Callable[[], int],
        *,
        events: WorkerEvents | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.identity = identity
        self.queues = QueueCounters()
        self.recent_seconds = RecentSeconds()
        self.dropped_minutes = 0
        """Minutes that were dropped because of their number or the end of the process."""
        self._database = database
        self._worker_minutes = WorkerMinutes(database)
        self._metrics = metrics
        self._load = load
        self._batchers = batchers
        self._count_parked_pops = count_parked_pops
        self._events = events
        self._clock = clock
        self._process = psutil.Process()
        now_s = clock()
        self.minute = WorkerMinute(_minute_start(now_s), now_s)
        self._closed_minutes: dict[int, WorkerMinute] = {}
        self._is_stopped = False
        self._previous_totals = self._read_totals()
        self._previous_batches = self._read_batches()
        self._sampled_at = time.monotonic()
        self._cpu_s = time.process_time()
        self._write_due_s = now_s + WRITE_INTERVAL_S
        self._write_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()

    @property
    def unwritten_minutes(self) -> int:
        """Number of minutes that are over and not known to be written."""
        return len(self._closed_minutes)

    async def start(self) -> None:
        if not self._is_stopped:
            self._metrics.observer = self.observe
            await super().start()

    async def stop(self) -> None:
        """Write the remaining minutes; call it when operations have ended."""
        if not self.is_started:
            return
        await super().stop()
        self._metrics.close_tallies()
        self._metrics.observer = None
        self.sample()
        if self._events is not None:
            self._events.flush()
        self._close_minute()
        self._is_stopped = True
        try:
            async with asyncio.timeout(LAST_WRITE_TIMEOUT_S):
                if self._write_task is not None:
                    await self._write_task
                await self.write_minutes()
        except (PenstockError, TimeoutError) as error:
            self._drop_unwritten(error)
        except Exception as error:
            # The caller must be able to stop its other parts, whatever PostgreSQL says about a row.
            logger.exception("PostgreSQL refused the last row of this broker")
            self._drop_unwritten(error)

    def sample(self) -> None:
        """Add the measurements since the last call to the current minute; start the next minute when it is
        due.
        """
        now_s = self._clock()
        self._metrics.close_tallies()
        minute = self.minute
        totals = self._read_totals()
        counts = {name: total - self._previous_totals[name] for name, total in totals.items()}
        self._previous_totals = totals
        for name, amount in counts.items():
            minute.counts[name] += amount
        previous_cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        cpu_s = self._cpu_s - previous_cpu_s
        minute.cpu_s += cpu_s
        loop_lag = self._load.take_loop_lag()
        minute.loop_lag.merge(loop_lag)
        gauges = self._read_gauges()
        for name, value in gauges.items():
            minute.gauges[name].add(value)
        for name, batcher in self._batchers.items():
            minute.pending.setdefault(name, SampleSummary()).add(batcher.pending)
        # A clock that is set back does not shorten the covered time.
        minute.covered_to = max(minute.covered_to, min(now_s, minute.end_s))
        self._add_recent_second(now_s, cpu_s, loop_lag.highest, gauges)
        if self._events is not None:
            self._events.add_second(now_s, counts, gauges, loop_lag.highest)
        if now_s >= minute.end_s:
            self._close_minute()
            self.minute = WorkerMinute(_minute_start(now_s), _minute_start(now_s))

    def _add_recent_second(
        self, now_s: float, cpu_s: float, max_loop_lag_s: float, gauges: Mapping[str, int]
    ) -> None:
        previous_at, self._sampled_at = self._sampled_at, time.monotonic()
        previous, self._previous_batches = self._previous_batches, self._read_batches()
        batches, requests = (
            now - before for now, before in zip(self._previous_batches, previous, strict=True)
        )
        self.recent_seconds.add(
            ProcessSecond(
                time_s=int(now_s),
                loop_lag_ms=round(max_loop_lag_s * 1000, 1),
                cpu_percent=round(cpu_s * 100 / max(self._sampled_at - previous_at, 0.001), 1),
                busy_connections=gauges["busy_connections"],
                connection_waiters=gauges["connection_waiters"],
                pending_requests=gauges["pending_requests"],
                batches=batches,
                batch_requests=requests,
                resident_bytes=gauges["resident_bytes"],
            )
        )

    async def write_minutes(self) -> None:
        """Write the closed minutes, oldest first, and the current one so far.

        Each minute is one statement: after a long outage all of them would be too much for one.
        """
        async with self._write_lock:
            started_s, building_s = self._clock(), 0.0
            for start_s, minute in sorted(self._closed_minutes.items()):
                building_s += await self._write_minute(minute)
                self._closed_minutes.pop(start_s, None)
            if not self._is_stopped:
                building_s += await self._write_minute(self.minute)
            self._write_due_s = started_s + max(WRITE_INTERVAL_S, building_s / MAX_WRITE_SHARE)

    def observe(self, scope: Scope, queue: str, group: str, tally: QueueTally) -> None:
        """Add a tally of the queue metrics to the current minute, the totals and the events."""
        self.minute.add_tally(scope, queue, group, tally)
        self.queues.add_tally(scope, queue, group, tally)
        if self._events is not None:
            self._events.add_tally(tally)

    async def _write_minute(self, minute: WorkerMinute) -> float:
        """Return how long building the rows blocked the event loop."""
        started_s = time.perf_counter()
        row, queue_rows = minute.to_rows(self.identity)
        building_s = time.perf_counter() - started_s
        await self._worker_minutes.write([row], queue_rows)
        return building_s

    def _drop_unwritten(self, error: Exception) -> None:
        self.dropped_minutes += self.unwritten_minutes
        logger.warning("%d minutes of this broker were not written: %s", self.unwritten_minutes, error)

    def _close_minute(self) -> None:
        self._closed_minutes[self.minute.start_s] = self.minute
        while len(self._closed_minutes) > MAX_UNWRITTEN_MINUTES:
            del self._closed_minutes[min(self._closed_minutes)]
            self.dropped_minutes += 1
        self._write_due_s = 0.0

    def _read_totals(self) -> dict[str, int]:
        """Return the counts since the process started, by the name of their column."""
        requests = self._metrics.requests
        return {
            "push_requests": requests.push,
            "pop_requests": requests.pop,
            "ack_requests": requests.ack,
            "transaction_requests": requests.transaction,
            "transaction_messages": requests.transaction_messages,
            "database_errors": self._database.errors,
        }

    def _read_batches(self) -> tuple[int, int]:
        """Return the batches since the process started, and the requests in them."""
        stats = [batcher.stats for batcher in self._batchers.values()]
        return sum(stat.batches for stat in stats), sum(stat.requests for stat in stats)

    def _read_gauges(self) -> dict[str, int]:
        _, busy = self._database.connections
        return {
            "busy_connections": busy,
            "free_connections": self._database.size - busy,
            "connection_waiters": self._database.waiting,
            "pending_requests": sum(batcher.pending for batcher in self._batchers.values()),
            "parked_pops": self._count_parked_pops(),
            "spilled": self._load.waiting,
            "resident_bytes": self._process.memory_info().rss,
        }

    async def _run(self) -> None:
        while True:
            # Wake on the second, so that a minute ends with its last second.
            await asyncio.sleep(1.001 - self._clock() % 1.0)
            try:
                self.sample()
            except Exception:
                # An error in one second must not end the measurements.
                logger.exception("One second of worker metrics is lost")
            if self._clock() >= self._write_due_s and self._write_task is None:
                self._write_task = asyncio.create_task(self._write_in_background())

    async def _write_in_background(self) -> None:
        try:
            await self.write_minutes()
        except PenstockError as error:
            logger.debug("Worker metrics wait for the database: %s", error.detail)
        except Exception:
            logger.exception("Worker metrics were not written")
        finally:
            self._write_task = None


def _minute_start(time_s: float) -> int:
    return int(time_s) // MINUTE_S * MINUTE_S
