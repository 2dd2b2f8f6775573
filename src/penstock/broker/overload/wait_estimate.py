"""Estimate how long a new request waits for its batch, from the measured service times of batches.

A request waits for the batches ahead of it, and each takes as long as batches take at the moment:

    wait = batches ahead × service time ÷ batches in parallel

Arrivals do not enter the estimate: the rate of a quiet caller says nothing about the capacity. A request that
finds a free call to the database does not wait, however long the call takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.batching import BatcherState

SMOOTHING_S = 1.0
"""Measurements are smoothed over about this time."""
SMOOTHING_BATCHES = 4
"""Service times are smoothed over about this many batches, so that one slow batch weighs little."""
IDLE_FADE_S = 5.0
"""Without batches a service time fades over about this time. Pauses within an overload are shorter."""


@dataclass(slots=True)
class MovingAverage:
    """An average in which older measurements fade exponentially."""

    value: float = 0.0

    def add(self, measured: float, seconds: float) -> None:
        """Add what was measured over this time."""
        self.add_weighted(measured, seconds / SMOOTHING_S)

    def add_weighted(self, measured: float, weight: float) -> None:
        """Add a measurement. With a weight of 1 it replaces about two thirds of the older ones."""
        self.value += (measured - self.value) * (1 - math.exp(-weight))


@dataclass(slots=True)
class WaitEstimate:
    """The wait of a new request of one batcher. Before the first batch, and after a quiet time, it is 0."""

    batcher: BatcherState
    service_s: MovingAverage = field(default_factory=MovingAverage)
    """How long recent batches took, the wait for a database connection included."""
    batch_s: float = 0.0
    """How long a batch takes at the moment: as recent ones, and at least as long as the oldest in flight has
    taken so far."""
    _batches: int = 0
    _busy_s: float = 0.0

    def measure(self, elapsed_s: float, loop_lag_s: float = 0.0) -> None:
        """Take a measurement, `elapsed_s` after the previous one.

        A batch that ended while the event loop lagged still counts as in flight, so the lag is deducted from
        its age.
        """
        stats = self.batcher.stats
        batches, busy_s = stats.batches - self._batches, stats.busy_s - self._busy_s
        self._batches, self._busy_s = stats.batches, stats.busy_s
        if batches:
            self.service_s.add_weighted(busy_s / batches, batches / SMOOTHING_BATCHES)
        elif not self.batcher.in_flight:
            self.service_s.add_weighted(0.0, elapsed_s / IDLE_FADE_S)
        self.batch_s = max(self.service_s.value, self.batcher.oldest_batch_s() - loop_lag_s)

    @property
    def wait_s(self) -> float:
        """How long a new request waits until its batch starts."""
        return self.wait_behind(self.batcher.batches_ahead())

    def wait_behind(self, batches_ahead: int) -> float:
        """How long a request waits behind that many batches."""
        return batches_ahead * self.batch_s / self.batcher.max_in_flight
