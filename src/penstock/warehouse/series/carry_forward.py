"""Gauges between observations.

A queue that nothing happens to emits nothing, but it is not empty for that. Its gauges keep their last value
until the next observation, never their maximum: a spike that drained inside its own bucket left no backlog.
Points made this way are marked. Before the first observation ever made there is no value, not even 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.window import Window


@dataclass(frozen=True, slots=True)
class Carried:
    """Gauges at every point of a window, in order: maximum and last value of each, and when last seen. ABSENT
    where nobody knows.

    `carried`: nothing was observed in this point's time, the values are from before.
    """

    highest: Mapping[str, Column]
    last: Mapping[str, Column]
    seen_ms: Column
    carried: Column


def carry_forward(window: Window, gauges: Sequence[str], points: Points) -> Carried:
    """The gauges of all points of the window, observed or not."""
    highest, last = {}, {}
    for name in gauges:
        seen = points.columns[f"{name}_last"]
        last[name] = _filled(seen, points.before.gauges[name])
        # Between observations the maximum is the last value too.
        highest[name] = np.where(seen == ABSENT, last[name], points.columns.get(f"{name}_max", seen))
    times = points.columns["seen_ms"] if gauges else np.full(len(window.buckets), ABSENT)
    seen_ms = _filled(times, points.before.seen_ms)
    return Carried(highest, last, seen_ms, (times == ABSENT) & (seen_ms != ABSENT))


def _filled(values: Column, before: int | None) -> Column:
    """The values, with the last known one in place of each that is absent."""
    seeded = np.concatenate(([ABSENT if before is None else before], values))
    newest = np.maximum.accumulate(np.where(seeded == ABSENT, 0, np.arange(len(seeded))))
    return seeded[newest][1:]


def grown_age(age_ms: Column, depth: Column, seen_ms: Column, until_s: Column) -> Column:
    """The oldest message's age at `until_s`, when it was last seen as `age_ms`.

    While nothing happens to a queue that holds something, its oldest message gets older by the clock.
    """
    grows = (age_ms != ABSENT) & (seen_ms != ABSENT) & (depth > 0)
    return np.where(grows, age_ms + np.maximum(0, (until_s * 1000).astype(np.int64) - seen_ms), age_ms)
