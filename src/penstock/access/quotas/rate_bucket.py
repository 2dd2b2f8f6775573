"""Rates of requests and bytes: a bucket in each broker process, filled with its share of the limit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import exp

SMOOTHING_S = 0.5
"""Time constant of measured rates."""
MIN_WAIT_S = 0.001
HEADROOM = 1.1
"""How far a process may grow beyond its present demand while others want more than there is."""
MIN_SHARE = 0.05
"""The part of the limit that processes without any demand share, so that their first request is admitted."""


class SmoothedRate:
    """The average amount per second of the last moments."""

    __slots__ = ("per_second",)

    def __init__(self) -> None:
        self.per_second = 0.0

    def add(self, amount: float, elapsed_s: float) -> None:
        weight = 1 - exp(-elapsed_s / SMOOTHING_S)
        self.per_second += weight * (amount / elapsed_s - self.per_second)


class RateBucket:
    """Admits requests while its level is above 0. It fills at `rate`, up to the amount of one second.

    A request takes its whole size, even if that is more than the bucket holds, and the next ones wait until
    the bucket has recovered. So no request is too large to be ever admitted. Requests change the level and
    the counters directly, and only an empty bucket looks at the clock: requests are frequent.
    """

    __slots__ = ("_filled_s", "demand", "demanded", "level", "limit", "rate", "refused", "used")

    def __init__(self, limit: float, process_count: int) -> None:
        self.limit = limit
        self.rate = limit / process_count
        """This process's share of the limit."""
        self.level = self.rate
        self._filled_s = time.monotonic()
        self.demanded = 0.0
        """What requests wanted to take, also refused ones, since the last measurement."""
        self.refused = 0.0
        self.demand = SmoothedRate()
        self.used = SmoothedRate()

    def fill(self) -> bool:
        """Add what has accrued since the last time; return whether requests are admitted now."""
        now_s = time.monotonic()
        self.level = min(self.rate, self.level + (now_s - self._filled_s) * self.rate)
        self._filled_s = now_s
        return self.level > 0

    def refuse(self, amount: float) -> float:
        """Count a refused amount; return the seconds until requests are admitted."""
        self.refused += amount
        return max(-self.level / self.rate, MIN_WAIT_S)

    def measure(self, elapsed_s: float) -> None:
        """Update the rates of demand and use, and fill the bucket: ten times a second while it is used."""
        self.fill()
        self.demand.add(self.demanded, elapsed_s)
        self.used.add(self.demanded - self.refused, elapsed_s)
        self.demanded = self.refused = 0.0

    def apply_demands(self, other_demands: Sequence[float]) -> None:
        """Set this process's share, from the demands of the other processes."""
        self.rate = share_of_limit(self.limit, self.demand.per_second, other_demands)


def share_of_limit(limit: float, own_demand: float, other_demands: Sequence[float]) -> float:
    """Return the rate that one process may admit, so that all processes together stay at the limit.

    If the limit suffices for all, each process gets its demand and an equal part of the rest. If not, small
    demands are met, and the processes with larger ones get equal shares. A process without demand keeps a
    small share, so that its next request is not refused.
    """
    demands = sorted([own_demand, *other_demands])
    min_share = limit * MIN_SHARE / len(demands)
    rest = limit - sum(demands)
    if rest >= 0:
        return max(own_demand + rest / len(demands), min_share)
    unassigned = limit
    equal_share = limit / len(demands)
    for position, demand in enumerate(demands):
        equal_share = unassigned / (len(demands) - position)
        if demand > equal_share:
            break
        unassigned -= demand
    return max(min(own_demand * HEADROOM, equal_share), min_share)
