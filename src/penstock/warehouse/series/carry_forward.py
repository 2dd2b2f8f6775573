"""Carry gauge values forward to points without an observation.

An idle queue emits nothing, but that does not make it empty. Its gauges keep their last value until the next
observation, never their maximum: a spike that drained within its own bucket left no backlog. Such points are
marked as carried. Before the first observation a gauge has no value, not even 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.window import SeriesWindow


@dataclass(frozen=True, slots=True)
class CarriedGauges:
    """The gauges at every point of a window: maximum and last value, and the time of the last observation.

    Unknown values are ABSENT. `carried` tells for each point whether nothing was observed in its time, so
    that its values come from an earlier point.
    """

    max: Mapping[str, Column]
    last: Mapping[str, Column]
    seen_ms: Column
    carried: Column


def carry_forward(window: SeriesWindow, gauges: Sequence[str], points: Points) -> CarriedGauges:
    """Return the gauges of all points of the window, observed or not."""
    max_values, last_values = {}, {}
    for name in gauges:
        observed = points.columns[f"{name}_last"]
        last_values[name] = _fill_forward(observed, points.last_known.gauges[name])
        # A point without an observation has the last value as its maximum, too.
        max_values[name] = np.where(
            observed == ABSENT, last_values[name], points.columns.get(f"{name}_max", observed)
        )
    observed_ms = points.columns["seen_ms"] if gauges else np.full(len(window.buckets), ABSENT)
    seen_ms = _fill_forward(observed_ms, points.last_known.seen_ms)
    return CarriedGauges(max_values, last_values, seen_ms, (observed_ms == ABSENT) & (seen_ms != ABSENT))


def _fill_forward(values: Column, initial: int | None) -> Column:
    """Replace each absent value with the last present one before it, starting with `initial`."""
    seeded = np.concatenate(([ABSENT if initial is None else initial], values))
    newest = np.maximum.accumulate(np.where(seeded == ABSENT, 0, np.arange(len(seeded))))
    return seeded[newest][1:]


def extrapolate_age(age_ms: Column, depth: Column, seen_ms: Column, until_s: Column) -> Column:
    """Return the age of the oldest message at `until_s`, given its age `age_ms` at `seen_ms`.

    While a queue with messages is idle, its oldest message ages with the clock.
    """
    grows = (age_ms != ABSENT) & (seen_ms != ABSENT) & (depth > 0)
    return np.where(grows, age_ms + np.maximum(0, (until_s * 1000).astype(np.int64) - seen_ms), age_ms)
