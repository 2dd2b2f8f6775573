"""Decide whether a sampled series is flat, grows as declared, or grows without a bound.

The trend is the Theil–Sen slope, the median of the slopes between all pairs of samples, which outliers hardly
move. The lower edge of the series, its lowest tenth in the first and in the last third, has to rise as well:
what is filled and emptied in turns has a trend by chance, but it returns to its edge.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_POINTS = 240
"""More samples are thinned out to this number by medians, because the pairs grow with its square."""
MIN_POINTS = 20
"""A trend of fewer samples says nothing."""


class Verdict(StrEnum):
    FLAT = "flat"
    DECLARED = "grows as declared"
    GROWING = "grows"
    UNJUDGED = "not judged"
    """The series was sampled for too short a time."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a series may grow during the judged time: a share of its median, or `floor` if that is more.

    What grows by design has a rate per minute instead, and the reason for it.
    """

    share: float = 0.10
    floor: float = 0.0
    per_minute: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trend:
    """The judged part of a series."""

    verdict: Verdict
    median: float
    growth: float
    """How much the series grew: by its trend or by its lower edge, whichever is less."""
    allowed: float


def judge(times_s: Sequence[float], values: Sequence[float], bound: Bound, min_window_s: float) -> Trend:
    """Judge the samples of a series after its warm-up; `times_s` are their times in seconds."""
    if len(values) < MIN_POINTS or times_s[-1] - times_s[0] < min_window_s:
        return Trend(Verdict.UNJUDGED, statistics.median(values) if values else 0.0, 0.0, 0.0)
    window_s = times_s[-1] - times_s[0]
    growth = min(theil_sen_slope(*thin_out(times_s, values)) * window_s, edge_growth(times_s, values))
    median = statistics.median(values)
    flat_growth = max(bound.share * abs(median), bound.floor)
    declared_growth = bound.per_minute * window_s / 60
    if growth <= flat_growth:
        return Trend(Verdict.FLAT, median, growth, flat_growth)
    if growth <= declared_growth:
        return Trend(Verdict.DECLARED, median, growth, declared_growth)
    return Trend(Verdict.GROWING, median, growth, max(flat_growth, declared_growth))


def edge_growth(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the growth of the lower edge from the first to the last third, extrapolated to all thirds."""
    third_s = (times_s[-1] - times_s[0]) / 3
    first = [value for time_s, value in zip(times_s, values, strict=True) if time_s <= times_s[0] + third_s]
    last = [value for time_s, value in zip(times_s, values, strict=True) if time_s >= times_s[-1] - third_s]
    return (_lower_edge(last) - _lower_edge(first)) * 3 / 2


def _lower_edge(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def theil_sen_slope(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs of samples, per second."""
    slopes = [
        (later - value) / (later_s - time_s)
        for index, (time_s, value) in enumerate(zip(times_s, values, strict=True))
        for later_s, later in zip(times_s[index + 1 :], values[index + 1 :], strict=True)
        if later_s > time_s
    ]
    return statistics.median(slopes) if slopes else 0.0


def thin_out(
    times_s: Sequence[float], values: Sequence[float], max_points: int = MAX_POINTS
) -> tuple[list[float], list[float]]:
    """Return at most `max_points` samples: the medians of equal numbers of neighbours."""
    size = -(-len(values) // max_points)
    starts = range(0, len(values), size)
    return (
        [statistics.median(times_s[start : start + size]) for start in starts],
        [statistics.median(values[start : start + size]) for start in starts],
    )
