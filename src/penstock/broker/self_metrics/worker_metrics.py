"""What this broker process measures of itself: sampled every second, written as minute rows.

Operations add to plain numbers that are there anyway; once a second a background task takes what has come
together, looks at connections, waiting requests and memory, and adds that to the running minute. The row of
the running minute is written every few seconds in place of the last one, so a process that is killed loses
those seconds and no more, and its row says until when it speaks. The next row is another process's: what
lies between is a gap.

A minute is kept until its row is known to be written, and an hour of them at most; what goes beyond is
counted as dropped. Writing is no operation: it shows in none of the counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import psutil

from penstock.batching import BatcherState
from penstock.broker.overload.load import LoadMonitor, SampleSummary
from penstock.broker.self_metrics.minute import SECONDS, Identity, Minute
from penstock.broker.self_metrics.queue_counters import QueueCounters
from penstock.broker.self_metrics.queue_metrics import QueueMetrics, Tally
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.clock import Clock, system_clock
from penstock.durable.pool import Database
from penstock.durable.worker_minutes import WorkerMinutes
from penstock.errors import PenstockError
from penstock.model import Scope

logger = logging.getLogger(__name__)

WRITE_EVERY_S = 10.0
WRITE_SHARE = 0.01
"""The part of the time that putting rows together may take, however many queues there are."""
MOST_MINUTES = 60
LAST_WRITE_S = 5.0
"""How long the end of the process waits for the last row."""


class WorkerMetrics:
    """The background task. `start` and `stop` may be called twice; after `stop` everything is written, or
    given up and counted in `dropped`, and it does not start again."""

    def __init__(
        self,
        identity: Identity,
        database: Database,
        metrics: QueueMetrics,
        load: LoadMonitor,
        batchers: Mapping[str, BatcherState],
        parked: Callable[[], int],
        *,
        events: WorkerEvents | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.identity = identity
        self.queues = QueueCounters()
        self.dropped = 0
        """Minutes that were given up for want of room or time."""
        self._database = database
        self._metrics = metrics
        self._load = load
        self._batchers = batchers
        self._parked = parked
        self._events = events
        self._clock = clock
        self._process = psutil.Process()
        now = clock()
        self.minute = Minute(_minute_of(now), now)
        self._closed: dict[int, Minute] = {}
        self._is_over = False
        self._seen = self._totals()
        self._cpu_s = time.process_time()
        self._due_at = now + WRITE_EVERY_S
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def unwritten(self) -> int:
        """Minutes that are over and not known to be written."""
        return len(self._closed)

    async def start(self) -> None:
        if self._task is None and not self._is_over:
            self._metrics.observer = self._observe
            self._task = asyncio.create_task(self._run(), name="worker metrics")

    async def stop(self) -> None:
        """Write what is left; to be called when operations have ended."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._metrics.take()
        self._metrics.observer = None
        self.tick()
        if self._events is not None:
            self._events.flush()
        self._close()
        self._is_over = True
        try:
            async with asyncio.timeout(LAST_WRITE_S):
                if self._writing is not None:
                    await self._writing
                await self.write()
        except (PenstockError, TimeoutError) as error:
            self._give_up(error)
        except Exception as error:
            # What is stopped after this one must be stopped, whatever PostgreSQL says of a row.
            logger.exception("the last row of this broker is wrong")
            self._give_up(error)

    def tick(self) -> None:
        """Add what has happened since the last time to the running minute; begin the next one when it is
        due."""
        now = self._clock()
        self._metrics.take()
        minute = self.minute
        totals = self._totals()
        counted = {name: total - self._seen[name] for name, total in totals.items()}
        self._seen = totals
        for name, amount in counted.items():
            minute.counts[name] += amount
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        minute.cpu_s += self._cpu_s - cpu_s
        late = self._load.take_loop_lag()
        minute.late.merge(late)
        gauges = self._gauges()
        for name, value in gauges.items():
            minute.gauges[name].add(value)
        for name, batcher in self._batchers.items():
            minute.pending.setdefault(name, SampleSummary()).add(batcher.pending)
        # A clock that is set back does not make the time that was covered shorter.
        minute.covered_to = max(minute.covered_to, min(now, minute.end_s))
        if self._events is not None:
            self._events.add(now, counted, gauges, late.highest)
        if now >= minute.end_s:
            self._close()
            self.minute = Minute(_minute_of(now), _minute_of(now))

    async def write(self) -> None:
        """Write every minute that is over, oldest first, and the running one as far as it has come.

        Minutes go one by one: after a long outage all of them would be too much for one statement.
        """
        async with self._turn:
            started, spent_s = self._clock(), 0.0
            for at_s, minute in sorted(self._closed.items()):
                spent_s += await self._write(minute)
                self._closed.pop(at_s, None)
            if not self._is_over:
                spent_s += await self._write(self.minute)
            self._due_at = started + max(WRITE_EVERY_S, spent_s / WRITE_SHARE)

    async def _write(self, minute: Minute) -> float:
        """How long it took to put the rows together, which nothing else could run beside."""
        started = time.perf_counter()
        row, queues = minute.rows(self.identity)
        took_s = time.perf_counter() - started
        await WorkerMinutes(self._database).write([row], queues)
        return took_s

    def _observe(self, scope: Scope, queue: str, group: str, tally: Tally) -> None:
        self.minute.observe(scope, queue, group, tally)
        self.queues.observe(queue, group, tally)
        if self._events is not None:
            self._events.observe(tally)

    def _give_up(self, error: Exception) -> None:
        self.dropped += self.unwritten
        logger.warning("%d minutes of this broker were not written: %s", self.unwritten, error)

    def _close(self) -> None:
        self._closed[self.minute.at_s] = self.minute
        while len(self._closed) > MOST_MINUTES:
            del self._closed[min(self._closed)]
            self.dropped += 1
        self._due_at = 0.0

    def _totals(self) -> dict[str, int]:
        """What is counted since the process started, by the column it ends in."""
        requests = self._metrics.requests
        return {
            "push_requests": requests.push,
            "pop_requests": requests.pop,
            "ack_requests": requests.ack,
            "transaction_requests": requests.transaction,
            "transaction_messages": requests.transaction_messages,
            "database_errors": self._database.errors,
        }

    def _gauges(self) -> dict[str, int]:
        _, busy = self._database.connections
        return {
            "busy_connections": busy,
            "free_connections": self._database.size - busy,
            "connection_waiters": self._database.waiting,
            "pending_requests": sum(batcher.pending for batcher in self._batchers.values()),
            "parked_pops": self._parked(),
            "spilled": self._load.waiting,
            "resident_bytes": self._process.memory_info().rss,
        }

    async def _run(self) -> None:
        while True:
            # On the second, so that a minute ends with its last second.
            await asyncio.sleep(1.001 - self._clock() % 1.0)
            try:
                self.tick()
            except Exception:
                # The next second is worth measuring whatever went wrong in this one.
                logger.exception("a second of worker metrics was lost")
            if self._clock() >= self._due_at and self._writing is None:
                self._writing = asyncio.create_task(self._write_in_background())

    async def _write_in_background(self) -> None:
        try:
            await self.write()
        except PenstockError as error:
            logger.debug("worker metrics wait for the database: %s", error.detail)
        except Exception:
            logger.exception("worker metrics were not written")
        finally:
            self._writing = None


def _minute_of(now_s: float) -> int:
    return int(now_s) // SECONDS * SECONDS
