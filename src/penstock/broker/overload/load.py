"""Measure the load of this broker and its database, and decide about requests: execute, defer or refuse.

The load is one number per kind of operation, where 1 is the most that is acceptable: the wait of a new
request for its batch (`WaitEstimate`), or the time the database takes for a batch if that is longer, over
`wait_s`. It is smoothed over about a second. A kind is busy from its threshold until the load is well below
it, so that decisions do not flap. A kind that is not busy executes every request that waits less than
`wait_s`.

Deferring is for spikes: it accepts requests at once and executes them a little later. It adds work instead of
removing it, so it does not help against a sustained overload. `spike_s` after the first request that could
not be executed, or when the lanes are full, no request is deferred any more: the broker executes as many as
it can with a short wait and refuses the rest, until it has refused none for a while. The load does not tell
when an overload is over, because refusing lowers it.

An event loop that lags is a sign that this process has more to do than it can; deferring would add to that,
so the broker refuses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

from penstock.background import BackgroundTask
from penstock.batching import BatcherState, QueueTimeout
from penstock.broker.overload.wait_estimate import MovingAverage, WaitEstimate
from penstock.config import Settings
from penstock.durable.deferred_operations import DeferredOperations
from penstock.durable.pool import Database
from penstock.errors import Overloaded, PenstockError

logger = logging.getLogger(__name__)

INTERVAL_S = 0.1
DEPTH_INTERVAL_S = 0.5
RECOVERY_RATIO = 0.7
"""A busy kind is calm again below this share of its threshold, and full lanes reopen likewise."""
RECOVERY_S = 5.0
"""An overload is over when no request was deferred or refused for this long."""
OVERLOADED_WAIT_RATIO = 0.25
"""In a sustained overload the wait may take this share of `wait_s`: a longer queue adds no throughput."""
QUEUE_TIMEOUT_RATIO = 2.0
"""A request may wait for its batch this many times `wait_s`."""
MAX_LOOP_LAG_S = 1.0
MIN_RETRY_AFTER_S, MAX_RETRY_AFTER_S = 0.1, 30.0


class Decision(StrEnum):
    EXECUTE = "execute"
    DEFER = "spill"  # the public value in JSON and metric labels
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """A decision and its reason, as `GET /api/v1/operations/stats` shows it."""

    decision: Decision
    reason: str


SWITCHED_OFF = LoadVerdict(Decision.EXECUTE, "switched_off")
CALM = LoadVerdict(Decision.EXECUTE, "calm")
NEXT_BATCH = LoadVerdict(Decision.EXECUTE, "next_batch")
"""Within a sustained overload: the wait is short."""
ALWAYS_DEFERRED = LoadVerdict(Decision.DEFER, "always_deferred")
BUSY_DEFERRED = LoadVerdict(Decision.DEFER, "busy")
LOOP_LAGS = LoadVerdict(Decision.REFUSE, "event_loop_lags")
SUSTAINED_OVERLOAD = LoadVerdict(Decision.REFUSE, "sustained_overload")
LANES_FULL = LoadVerdict(Decision.REFUSE, "lanes_full")
BUSY_REFUSED = LoadVerdict(Decision.REFUSE, "busy")
"""The kind is never deferred, or deferring would take too long itself."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The load from which a kind of operation is deferred, and how many may wait in lanes.

    With a load of 0 every request of the kind is deferred. With a depth of 0 it is refused instead.
    """

    load: float
    depth: int


DEFAULT_THRESHOLDS = {
    "push": Threshold(0.7, 10_000),
    "ack": Threshold(0.8, 50_000),
    "pop": Threshold(0.95, 0),
}


def run_queue_timeout(settings: Settings) -> QueueTimeout | None:
    """Return how long requests of run queues may wait for their batch; None if the broker refuses nothing."""
    if not settings.load_management:
        return None
    timeout_s = QUEUE_TIMEOUT_RATIO * settings.load_wait_s
    return QueueTimeout(timeout_s, lambda: Overloaded(max(1.0, timeout_s)))


def read_thresholds(settings: Settings) -> dict[str, Threshold]:
    """Return the thresholds of every kind that can be deferred or refused. System work is neither."""
    return {
        "push": Threshold(settings.load_push, settings.load_push_depth),
        "ack": Threshold(settings.load_ack, settings.load_ack_depth),
        "pop": Threshold(settings.load_pop, 0),
    }


@dataclass(slots=True)
class SampleSummary:
    """Count, total, lowest and highest of observed values. Two summaries can be merged."""

    count: int = 0
    total: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0

    def add(self, value: float) -> None:
        self.lowest = min(self.lowest, value) if self.count else value
        self.highest = max(self.highest, value) if self.count else value
        self.count += 1
        self.total += value

    def merge(self, other: SampleSummary) -> None:
        if other.count:
            self.lowest = min(self.lowest, other.lowest) if self.count else other.lowest
            self.highest = max(self.highest, other.highest) if self.count else other.highest
            self.count += other.count
            self.total += other.total


@dataclass(slots=True)
class _KindLoad:
    """The measured state of one kind of operation."""

    threshold: Threshold
    queue: WaitEstimate
    defer_queue: WaitEstimate | None = None
    load: MovingAverage = field(default_factory=MovingAverage)
    is_busy: bool = False
    is_full: bool = False
    is_sustained: bool = False
    """The overload is more than a spike."""
    overload_s: float = 0.0
    """How long ago the overload began; 0 without an overload."""
    relief_s: float = 0.0
    """For how long no request has been deferred or refused."""
    executed_all: bool = True
    """No request has been deferred or refused since the last measurement."""
    waiting: int = 0
    """Operations in lanes."""
    finished: int | None = None
    drain_rate: MovingAverage = field(default_factory=MovingAverage)
    decisions: dict[Decision, int] = field(default_factory=lambda: dict.fromkeys(Decision, 0))

    @property
    def state(self) -> str:
        if self.is_full:
            return "full"
        if self.is_sustained:
            return "overloaded"
        return "busy" if self.is_busy else "calm"


class KindStatus(TypedDict):
    load: float
    threshold: float
    state: str
    decision: str
    """What happens to a request that comes now: `execute`, `spill` or `refuse`."""
    reason: str
    waitMs: float
    """How long a new request waits for its batch."""
    batchMs: float
    """How long a batch takes."""
    overloadSeconds: float
    waiting: int
    depthLimit: int
    drainedPerSecond: float
    decisions: dict[str, int]


class LoadStatus(TypedDict):
    enabled: bool
    waitLimitMs: float
    """A load of 1 is this wait, or a batch that takes as long."""
    spikeSeconds: float
    eventLoopLimitMs: float
    pool: float
    connections: dict[str, int]
    databaseMs: float
    eventLoopLateMs: float
    operations: dict[str, KindStatus]


class LoadMonitor(BackgroundTask):
    """Measure the load. Until it is started, everything counts as calm."""

    task_name = "load"

    def __init__(
        self,
        database: Database,
        thresholds: Mapping[str, Threshold],
        *,
        wait_s: float = 1.0,
        spike_s: float = 10.0,
        enabled: bool = True,
    ) -> None:
        self._database = database
        self._operations = DeferredOperations(database)
        self._thresholds = thresholds
        self._kinds: dict[str, _KindLoad] = {}
        self._batchers: Mapping[str, BatcherState] = {}
        self._queue_timeouts_s: dict[str, float] = {}
        self._wait_s = wait_s
        self._spike_s = spike_s
        self._enabled = enabled
        self.pool = MovingAverage()
        self.latency_s = MovingAverage()
        self.loop_lag_s = MovingAverage()
        self._loop_lag_summary = SampleSummary()
        self.measurements = 0
        """Number of measurements since the start."""
        self._busy_s = 0.0
        self._batches = 0
        self._depths_read_at = 0.0
        self._read_depths_needed = True
        """Lanes had operations at the last reading, or this process has deferred some since."""

    def watch(self, batchers: Mapping[str, BatcherState]) -> None:
        """Measure these batchers. Those named after a kind, or "spill" and a kind, decide about that kind."""
        self._batchers = batchers
        for kind, threshold in self._thresholds.items():
            defer_batcher = batchers.get(f"spill {kind}")
            self._kinds[kind] = _KindLoad(
                threshold,
                WaitEstimate(batchers[kind]),
                WaitEstimate(defer_batcher) if defer_batcher else None,
            )

    @property
    def enabled(self) -> bool:
        return self._enabled

    def decide(self, kind: str) -> Decision:
        """Decide about a request of this kind, and count the decision."""
        state = self._kinds[kind]
        decision = self._judge(kind, state).decision
        state.decisions[decision] += 1
        if decision is not Decision.EXECUTE:
            state.executed_all = False
        return decision

    def _judge(self, kind: str, state: _KindLoad) -> LoadVerdict:
        """Return what happens to a request that comes now."""
        batches_ahead = state.queue.batcher.batches_ahead()
        wait_s = state.queue.wait_behind(batches_ahead) if batches_ahead else 0.0
        if not self._enabled:
            return SWITCHED_OFF
        if not state.threshold.load and state.threshold.depth and not state.is_full:
            return ALWAYS_DEFERRED
        if self.loop_lag_s.value > MAX_LOOP_LAG_S:
            return LOOP_LAGS
        if state.is_sustained and state.threshold.depth:
            # The next batch is always filled, or the database would idle.
            is_short = batches_ahead <= 1 or wait_s < OVERLOADED_WAIT_RATIO * self._wait_s
            return NEXT_BATCH if is_short else SUSTAINED_OVERLOAD
        if wait_s < self._wait_s and not state.is_busy:
            return CALM
        if self.may_defer(kind):
            return BUSY_DEFERRED
        return LANES_FULL if state.is_full else BUSY_REFUSED

    def may_defer(self, kind: str) -> bool:
        """Return True if lanes may grow: they have room, and deferring itself does not take too long."""
        state = self._kinds[kind]
        if not state.threshold.depth or state.is_full or state.is_sustained:
            return False
        return state.defer_queue is not None and state.defer_queue.wait_s < self._wait_s

    def queue_timeout(self, kind: str) -> QueueTimeout | None:
        """Return how long requests of a kind may wait for their batch; None if the broker refuses nothing."""
        if not self._enabled:
            return None

        def create_error() -> Overloaded:
            return Overloaded(self.retry_after_s(kind))

        self._queue_timeouts_s[kind] = QUEUE_TIMEOUT_RATIO * self._wait_s
        return QueueTimeout(self._queue_timeouts_s[kind], create_error)

    def retry_after_s(self, kind: str) -> float:
        """Return the measured wait after which a retry can succeed, in steps of 10 ms.

        No request waits longer than its queue timeout. With full lanes the wait is the time until they have
        room, from the rate of their execution.
        """
        state = self._kinds[kind]
        queue_wait_s = min(state.queue.wait_s, self._queue_timeouts_s.get(kind, math.inf))
        wait_s = max(queue_wait_s, self.loop_lag_s.value)
        if state.is_full:
            excess = state.waiting - state.threshold.depth * RECOVERY_RATIO
            wait_s = max(wait_s, excess / max(state.drain_rate.value, 1.0))
        return math.ceil(min(max(MIN_RETRY_AFTER_S, wait_s), MAX_RETRY_AFTER_S) * 100) / 100

    def lanes_retry_after_s(self) -> float:
        """Estimate when the lanes are empty, for a request that has to be executed after their operations."""
        waits_s = [self.estimated_wait_s(kind) or 0.0 for kind in self._kinds]
        return min(max(1.0, *waits_s), MAX_RETRY_AFTER_S)

    def estimated_wait_s(self, kind: str) -> float | None:
        """Estimate how long an operation deferred now will wait, from the recent drain rate."""
        state = self._kinds[kind]
        if state.drain_rate.value <= 0:
            return None
        return round((state.waiting + 1) / state.drain_rate.value, 3)

    def add_deferred(self, kind: str, count: int) -> None:
        """Add operations that this process deferred. Those of other processes are read from time to time."""
        state = self._kinds[kind]
        state.waiting += count
        self._read_depths_needed = True
        state.is_full = state.is_full or state.waiting >= state.threshold.depth

    def take_loop_lag(self) -> SampleSummary:
        """Return the event loop's lag in seconds since the last call, and start a new summary."""
        summary, self._loop_lag_summary = self._loop_lag_summary, SampleSummary()
        return summary

    @property
    def waiting(self) -> int:
        """Number of operations in lanes, as far as this process knows."""
        return sum(state.waiting for state in self._kinds.values())

    def to_dict(self) -> LoadStatus:
        """Return all measurements, for the status page and the exporter."""
        opened, busy = self._database.connections
        return {
            "enabled": self._enabled,
            "waitLimitMs": self._wait_s * 1000,
            "spikeSeconds": self._spike_s,
            "eventLoopLimitMs": MAX_LOOP_LAG_S * 1000,
            "pool": round(self.pool.value, 3),
            "connections": {
                "limit": self._database.size,
                "open": opened,
                "busy": busy,
                "waiters": self._database.waiting,
            },
            "databaseMs": round(self.latency_s.value * 1000, 3),
            "eventLoopLateMs": round(self.loop_lag_s.value * 1000, 3),
            "operations": {kind: self._kind_to_dict(kind, state) for kind, state in self._kinds.items()},
        }

    def _kind_to_dict(self, kind: str, state: _KindLoad) -> KindStatus:
        verdict = self._judge(kind, state)
        return {
            "load": round(state.load.value, 3),
            "threshold": state.threshold.load,
            "state": state.state,
            "decision": str(verdict.decision),
            "reason": verdict.reason,
            "waitMs": round(state.queue.wait_s * 1000, 3),
            "batchMs": round(state.queue.batch_s * 1000, 3),
            "overloadSeconds": round(state.overload_s, 1),
            "waiting": state.waiting,
            "depthLimit": state.threshold.depth,
            "drainedPerSecond": round(state.drain_rate.value, 1),
            "decisions": {str(decision): count for decision, count in state.decisions.items()},
        }

    async def _run(self) -> None:
        measured_at = time.monotonic()
        while True:
            await asyncio.sleep(INTERVAL_S)
            now = time.monotonic()
            elapsed_s, measured_at = now - measured_at, now
            self.measure(elapsed_s)
            if now - self._depths_read_at >= DEPTH_INTERVAL_S and self._read_depths_needed:
                await self._read_depths(now)
                measured_at = time.monotonic()

    def measure(self, elapsed_s: float) -> None:
        """Take a measurement, `elapsed_s` after the previous one."""
        loop_lag_s = max(0.0, elapsed_s - INTERVAL_S)
        # Every measurement has the same weight, however long it took: one long stall is over when it is
        # noticed.
        self.loop_lag_s.add(loop_lag_s, 2 * INTERVAL_S)
        self._loop_lag_summary.add(loop_lag_s)
        _, busy = self._database.connections
        self.pool.add((busy + self._database.waiting) / (2 * self._database.size), elapsed_s)
        stats = [batcher.stats for batcher in self._batchers.values()]
        busy_s, batches = sum(s.busy_s for s in stats), sum(s.batches for s in stats)
        if batches > self._batches:
            self.latency_s.add((busy_s - self._busy_s) / (batches - self._batches), elapsed_s)
        elif not any(batcher.in_flight for batcher in self._batchers.values()):
            self.latency_s.add(0.0, elapsed_s)
        self._busy_s, self._batches = busy_s, batches
        for state in self._kinds.values():
            state.queue.measure(elapsed_s, loop_lag_s)
            if state.defer_queue is not None:
                state.defer_queue.measure(elapsed_s, loop_lag_s)
            state.load.add(max(state.queue.wait_s, state.queue.batch_s) / self._wait_s, elapsed_s)
            busy_above = state.threshold.load * (RECOVERY_RATIO if state.is_busy else 1.0)
            state.is_busy = state.load.value > busy_above
            self._measure_overload(state, elapsed_s)
        self.measurements += 1

    def _measure_overload(self, state: _KindLoad, elapsed_s: float) -> None:
        """Measure how long the overload has lasted; it is over after RECOVERY_S without a refusal."""
        state.relief_s = state.relief_s + elapsed_s if state.executed_all else 0.0
        if not state.executed_all or state.overload_s:
            state.overload_s += elapsed_s
        state.executed_all = True
        if state.relief_s > RECOVERY_S:
            state.overload_s, state.is_sustained = 0.0, False
        elif state.overload_s:
            state.is_sustained = state.is_sustained or state.is_full or state.overload_s > self._spike_s

    async def _read_depths(self, now: float) -> None:
        elapsed_s, self._depths_read_at = now - self._depths_read_at, now
        try:
            depths = await self._operations.depths()
        except PenstockError as error:
            logger.debug("Could not read the depth of lanes: %s", error.detail)
            return
        for kind, depth in depths.items():
            state = self._kinds[kind]
            state.waiting = depth.waiting
            full_from = state.threshold.depth * (RECOVERY_RATIO if state.is_full else 1.0)
            state.is_full = state.threshold.depth > 0 and depth.waiting >= full_from
            if state.finished is not None and (depth.waiting or depth.finished > state.finished):
                state.drain_rate.add((depth.finished - state.finished) / elapsed_s, elapsed_s)
            state.finished = depth.finished
        self._read_depths_needed = any(depth.waiting for depth in depths.values())
