"""How loaded this broker and its database are, and what that means for a request: execute, spill or refuse.

Load is a number per kind of operation, where 1 means as much as may be: the largest of
- the pool: half of it by connections that are busy, half by operations that wait for one;
- the wait that a new request would have for its batch, over `wait_s`;
- the time the database takes for a batch, over `wait_s`.
It is smoothed over about a second, and a kind counts as busy from its threshold until the load is a good deal
lower, so that decisions do not flap.

Spilling is for spikes: it lets a crowd in and does its work a little later. It makes no room, it costs some,
so it does not help against an overload that stays. When a kind has been busy for `spike_s`, or its lanes are
full, no more is spilled: what can be is carried out, the rest is refused, until it is calm for a while.

An event loop that comes late is a sign that this process has more to do than it can; spilling would only add
to that, so it refuses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.batching import Batcher, QueueTimeout
from penstock.config import Settings
from penstock.durable import deferred_operations
from penstock.durable.pool import Database
from penstock.errors import Overloaded, PenstockError

logger = logging.getLogger(__name__)

EVERY_S = 0.1
DEPTH_EVERY_S = 0.5
MEMORY_S = 1.0
"""Over about how long measurements are smoothed."""
CALM = 0.7
"""A busy kind is calm again below this part of its threshold, and full lanes are open again likewise."""
CALM_S = 5.0
"""For how long an overload must be over until spilling may help again."""
PATIENCE = 2.0
"""How many times the longest wait something may have waited when its turn comes."""
LATE_S = 1.0
"""How late the event loop may be."""
LONGEST_RETRY_S = 30.0


class Decision(StrEnum):
    EXECUTE = "execute"
    DEFER = "spill"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Threshold:
    """From which load a kind of operation is spilled, and how many may wait; 0: it is refused instead."""

    load: float
    depth: int


DEFAULTS = {"push": Threshold(0.7, 10_000), "ack": Threshold(0.8, 50_000), "pop": Threshold(0.95, 0)}


def thresholds(settings: Settings) -> dict[str, Threshold]:
    """Of every kind that can be spilled or refused. System work is neither."""
    return {
        "push": Threshold(settings.load_push, settings.load_push_depth),
        "ack": Threshold(settings.load_ack, settings.load_ack_depth),
        "pop": Threshold(settings.load_pop, 0),
    }


@dataclass(slots=True)
class Smoothed:
    """An average that forgets."""

    value: float = 0.0

    def add(self, measured: float, seconds: float) -> None:
        self.value += (measured - self.value) * (1 - math.exp(-seconds / MEMORY_S))


@dataclass(slots=True)
class SampleSummary:
    """What was observed of a number, in a form that adds up."""

    count: int = 0
    total: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0

    def add(self, value: float) -> None:
        self.lowest = min(self.lowest, value) if self.count else value
        self.highest = max(self.highest, value) if self.count else value
        self.count += 1
        self.total += value

    def join(self, other: SampleSummary) -> None:
        if other.count:
            self.lowest = min(self.lowest, other.lowest) if self.count else other.lowest
            self.highest = max(self.highest, other.highest) if self.count else other.highest
            self.count += other.count
            self.total += other.total


@dataclass(slots=True)
class _Line:
    """Those who wait for a batcher, and how fast it serves them."""

    batcher: Batcher[Any, Any]
    rate: Smoothed | None = None
    """Requests per second when there are more than that: an idle second says nothing about it."""
    first_s: float = 0.0
    """For how long the first one has waited."""
    served: int = 0

    def measure(self, passed_s: float) -> None:
        served = self.batcher.stats.requests
        rate = (served - self.served) / passed_s
        if self.batcher.pending and self.rate is not None:
            self.rate.add(rate, passed_s)
        elif self.batcher.pending and rate:
            self.rate = Smoothed(rate)
        self.served = served
        self.first_s = self.batcher.oldest_wait_s()

    @property
    def wait_s(self) -> float:
        """How long whoever comes now would wait."""
        pending = self.batcher.pending
        if not pending:
            return 0.0
        by_rate = pending / max(self.rate.value, 1.0) if self.rate is not None else 0.0
        return max(by_rate, self.first_s)


@dataclass(slots=True)
class _Kind:
    """What is known of one kind of operation."""

    threshold: Threshold
    line: _Line
    spill: _Line | None = None
    load: Smoothed = field(default_factory=Smoothed)
    is_busy: bool = False
    is_full: bool = False
    stays: bool = False
    """The overload is no spike."""
    since_s: float = 0.0
    """For how long it has been busy, or calm."""
    waiting: int = 0
    """Operations in lanes."""
    finished: int | None = None
    drain_rate: Smoothed = field(default_factory=Smoothed)
    decisions: dict[Decision, int] = field(default_factory=lambda: dict.fromkeys(Decision, 0))


class LoadMonitor:
    """Measures in the background; `start` and `stop` may be called twice. Until it is started all is calm."""

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
        self._thresholds = thresholds
        self._kinds: dict[str, _Kind] = {}
        self._batchers: Mapping[str, Batcher[Any, Any]] = {}
        self._wait_s = wait_s
        self._spike_s = spike_s
        self._enabled = enabled
        self.pool = Smoothed()
        self.latency_s = Smoothed()
        self.loop_lag_s = Smoothed()
        self._lateness = SampleSummary()
        self._busy_s = 0.0
        self._batches = 0
        self._depth_at = 0.0
        self._may_wait = True
        """Whether lanes have to be looked at: something was in them the last time, or went in since."""
        self._task: asyncio.Task[None] | None = None

    def watch(self, batchers: Mapping[str, Batcher[Any, Any]]) -> None:
        """Measure these; those of the kinds there are thresholds for, and of their spilling, decide."""
        self._batchers = batchers
        for kind, threshold in self._thresholds.items():
            spill = batchers.get(f"spill {kind}")
            self._kinds[kind] = _Kind(threshold, _Line(batchers[kind]), _Line(spill) if spill else None)

    @property
    def enabled(self) -> bool:
        return self._enabled

    def decide(self, kind: str) -> Decision:
        """What to do with a request of this kind now."""
        known = self._kinds[kind]
        decision = self._decision(kind, known) if self._enabled else Decision.EXECUTE
        known.decisions[decision] += 1
        return decision

    def _decision(self, kind: str, known: _Kind) -> Decision:
        if self.loop_lag_s.value > LATE_S:
            return Decision.REFUSE
        wait = known.line.wait_s / self._wait_s
        if known.stays and known.threshold.depth:
            return Decision.EXECUTE if wait < known.threshold.load else Decision.REFUSE
        if not known.is_busy and wait < 1.0:
            return Decision.EXECUTE
        return Decision.DEFER if self.may_defer(kind) else Decision.REFUSE

    def may_defer(self, kind: str) -> bool:
        """Whether a lane may get longer: there is room, and accepting does not take too long itself."""
        known = self._kinds[kind]
        if not known.threshold.depth or known.is_full or known.stays:
            return False
        return known.spill is not None and known.spill.wait_s < self._wait_s

    def queue_timeout(self, kind: str) -> QueueTimeout | None:
        """How long requests of a kind may wait for their batch; None if nothing is refused."""
        if not self._enabled:
            return None

        def error() -> Overloaded:
            return Overloaded(self.retry_after_s(kind))

        return QueueTimeout(PATIENCE * self._wait_s, error)

    def retry_after_s(self, kind: str) -> float:
        """When to ask again, from what is waiting and how fast that goes."""
        known = self._kinds[kind]
        wait_s = known.line.wait_s
        if known.is_full:
            over = known.waiting - known.threshold.depth * CALM
            wait_s = max(wait_s, over / max(known.drain_rate.value, 1.0))
        return min(max(1.0, wait_s), LONGEST_RETRY_S)

    def estimated_wait_s(self, kind: str) -> float | None:
        """How long what is accepted now will wait, from the rate at which lanes were drained lately."""
        known = self._kinds[kind]
        if known.drain_rate.value <= 0:
            return None
        return round((known.waiting + 1) / known.drain_rate.value, 3)

    def accepted(self, kind: str, count: int) -> None:
        """Operations went into lanes here; what others did is read now and then."""
        known = self._kinds[kind]
        known.waiting += count
        self._may_wait = True
        known.is_full = known.is_full or known.waiting >= known.threshold.depth

    def take_loop_lag(self) -> SampleSummary:
        """How late the event loop came, in seconds, since the last time this was asked."""
        taken, self._lateness = self._lateness, SampleSummary()
        return taken

    @property
    def waiting(self) -> int:
        """Operations in lanes, as far as this process knows."""
        return sum(known.waiting for known in self._kinds.values())

    def to_dict(self) -> dict[str, Any]:
        """All of it, for people and programs."""
        opened, busy = self._database.connections
        return {
            "enabled": self._enabled,
            "pool": round(self.pool.value, 3),
            "connections": {
                "limit": self._database.size,
                "open": opened,
                "busy": busy,
                "waiters": self._database.waiting,
            },
            "databaseMs": round(self.latency_s.value * 1000, 3),
            "eventLoopLateMs": round(self.loop_lag_s.value * 1000, 3),
            "operations": {
                kind: {
                    "load": round(known.load.value, 3),
                    "threshold": known.threshold.load,
                    "state": self._state(known),
                    "waiting": known.waiting,
                    "depthLimit": known.threshold.depth,
                    "drainedPerSecond": round(known.drain_rate.value, 1),
                    "decisions": {str(what): count for what, count in known.decisions.items()},
                }
                for kind, known in self._kinds.items()
            },
        }

    def _state(self, known: _Kind) -> str:
        if known.is_full:
            return "full"
        if known.stays:
            return "overloaded"
        return "busy" if known.is_busy else "calm"

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="load")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        measured_at = time.monotonic()
        while True:
            await asyncio.sleep(EVERY_S)
            now = time.monotonic()
            passed_s, measured_at = now - measured_at, now
            self.measure(passed_s)
            if now - self._depth_at >= DEPTH_EVERY_S and self._may_wait:
                await self._read_depths(now)
                measured_at = time.monotonic()

    def measure(self, passed_s: float) -> None:
        """Take note of how things are, `passed_s` after the last time."""
        late_s = max(0.0, passed_s - EVERY_S)
        # By how often, not by how long: one long stall is over when it is noticed.
        self.loop_lag_s.add(late_s, 2 * EVERY_S)
        self._lateness.add(late_s)
        _, busy = self._database.connections
        self.pool.add((busy + self._database.waiting) / (2 * self._database.size), passed_s)
        stats = [batcher.stats for batcher in self._batchers.values()]
        busy_s, batches = sum(s.busy_s for s in stats), sum(s.batches for s in stats)
        if batches > self._batches:
            self.latency_s.add((busy_s - self._busy_s) / (batches - self._batches), passed_s)
        elif not any(batcher.in_flight for batcher in self._batchers.values()):
            self.latency_s.add(0.0, passed_s)
        self._busy_s, self._batches = busy_s, batches
        for known in self._kinds.values():
            known.line.measure(passed_s)
            if known.spill is not None:
                known.spill.measure(passed_s)
            known.load.add(
                max(
                    self.pool.value,
                    known.line.wait_s / self._wait_s,
                    self.latency_s.value / self._wait_s,
                ),
                passed_s,
            )
            calm = known.threshold.load * (CALM if known.is_busy else 1.0)
            was_busy, known.is_busy = known.is_busy, known.load.value > calm
            known.since_s = known.since_s + passed_s if was_busy == known.is_busy else 0.0
            if known.is_busy:
                known.stays = known.stays or known.is_full or known.since_s > self._spike_s
            elif known.since_s > CALM_S:
                known.stays = False

    async def _read_depths(self, now: float) -> None:
        passed_s, self._depth_at = now - self._depth_at, now
        try:
            found = await deferred_operations.depths(self._database)
        except PenstockError as error:
            logger.debug("the depth of lanes is not known: %s", error.detail)
            return
        for kind, depth in found.items():
            known = self._kinds[kind]
            known.waiting = depth.waiting
            open_below = known.threshold.depth * (CALM if known.is_full else 1.0)
            known.is_full = known.threshold.depth > 0 and depth.waiting >= open_below
            if known.finished is not None and (depth.waiting or depth.finished > known.finished):
                known.drain_rate.add((depth.finished - known.finished) / passed_s, passed_s)
            known.finished = depth.finished
        self._may_wait = any(depth.waiting for depth in found.values())
