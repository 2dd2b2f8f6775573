"""Rates of requests and bytes: a bucket in each broker process, filled with its share of the limit."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

SMOOTHING_S = 0.5
"""Time constant of measured rates."""
MIN_WAIT_S = 0.001
HEADROOM = 1.1
"""How far a process may grow beyond its present demand while others want more than there is."""
MIN_SHARE = 0.05
"""The part of the limit that processes without any demand share, so that their first request is admitted."""


class RateBucket:
    """Admits requests while it is not empty. It fills at `rate`, up to the amount of one second.

    A request takes its whole size, even if that is more than the bucket holds, and the next ones wait until
    the bucket has recovered. So no request is too large to be ever admitted.
    """

    __slots__ = ("_level", "_updated_s", "admitted", "demanded", "rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._level = rate
        self._updated_s = now_s
        self.demanded = 0.0
        """What requests wanted to take, also refused ones, since the last measurement."""
        self.admitted = 0.0

    def seconds_until_admission(self, now_s: float) -> float:
        """Return how long a request has to wait; 0 if it is admitted now."""
        level = min(self.rate, self._level + (now_s - self._updated_s) * self.rate)
        self._level, self._updated_s = level, now_s
        return 0.0 if level > 0 else max(-level / self.rate, MIN_WAIT_S)

    def take(self, amount: float) -> None:
        self._level -= amount
        self.admitted += amount


class SmoothedRate:
    """The average amount per second of the last moments."""

    __slots__ = ("per_second",)

    def __init__(self) -> None:
        self.per_second = 0.0

    def add(self, amount: float, elapsed_s: float) -> None:
        weight = 1 - exp(-elapsed_s / SMOOTHING_S)
        self.per_second += weight * (amount / elapsed_s - self.per_second)


def share_of_limit(limit: float, own_demand: float, other_demands: Sequence[float]) -> float:
    """Return the rate that one process may admit, so that all processes together stay at the limit.

    If the limit suffices for all, each process gets its demand and an equal part of the rest. If not, small
    demands are met, and the processes with larger ones get equal shares.
    """
    demands = sorted([own_demand, *other_demands])
    rest = limit - sum(demands)
    if rest >= 0:
        return own_demand + rest / len(demands)
    unassigned = limit
    equal_share = limit / len(demands)
    for position, demand in enumerate(demands):
        equal_share = unassigned / (len(demands) - position)
        if demand > equal_share:
            break
        unassigned -= demand
    return max(min(own_demand * HEADROOM, equal_share), limit * MIN_SHARE / len(demands))
