"""Build the columns of a queue series: the requested fields of all points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.warehouse.series.carry_forward import CarriedGauges, extrapolate_age
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.series_columns import (
    ColumnTree,
    Flags,
    Numbers,
    Timestamps,
    point_starts,
)
from penstock.warehouse.series.series_fields import COUNTER_COLUMNS, SAMPLE_COLUMNS
from penstock.warehouse.series.window import SeriesWindow

MS_DECIMALS = 2
"""Average waits and percentiles have hundredths of a millisecond."""

FieldColumns = dict[str, Numbers]


def build_columns(
    window: SeriesWindow,
    points: Points,
    gauges: CarriedGauges,
    fields: Sequence[str],
    prefix: str,
    complete: Column,
) -> ColumnTree:
    """Return the time of every point, the fields, and two flags.

    `carried`: nothing was observed in the point's time, so its gauges come from an earlier point. `complete`:
    all events of its time were counted.
    """
    builders: dict[str, Callable[[], FieldColumns]] = {
        "throughput": lambda: _throughput(points),
        "queue_depth": lambda: max_and_last(gauges, f"{prefix}depth"),
        "delayed": lambda: max_and_last(gauges, f"{prefix}delayed"),
        "latency": lambda: _latency(window, points, gauges, prefix),
        "runtime": lambda: _samples(points, "runtime"),
        "concurrency": lambda: _concurrency(gauges, prefix),
        "failures": lambda: _failures(points),
    }
    return {
        "timestamp": Timestamps(point_starts(window)),
        **{name: builders[name]() for name in fields},
        "carried": Flags(gauges.carried),
        "complete": Flags(complete),
    }


def max_and_last(gauges: CarriedGauges, name: str) -> FieldColumns:
    """Return the columns of one gauge."""
    return {"max": Numbers(gauges.max[name]), "last": Numbers(gauges.last[name])}


def _throughput(points: Points) -> FieldColumns:
    return {name: Numbers(points.columns[column]) for name, column in COUNTER_COLUMNS["throughput"].items()}


def _failures(points: Points) -> FieldColumns:
    """Return the failures, and the share of finished attempts that failed; null without attempts."""
    nacked, dead, expired, acked = (points.columns[name] for name in COUNTER_COLUMNS["failures"].values())
    failed = nacked.astype(np.int64) + dead.astype(np.int64)
    attempts = failed + acked.astype(np.int64)
    rate = np.where(attempts > 0, failed / np.maximum(attempts, 1), ABSENT)
    return {
        "nack": Numbers(nacked),
        "dlq": Numbers(dead),
        "ttl_expired": Numbers(expired),
        "rate": Numbers(rate, decimals=4),
    }


def _samples(points: Points, field: str) -> FieldColumns:
    return {
        name: Numbers(points.columns[column], MS_DECIMALS) for name, column in SAMPLE_COLUMNS[field].items()
    }


def _latency(window: SeriesWindow, points: Points, gauges: CarriedGauges, prefix: str) -> FieldColumns:
    age = gauges.max[f"{prefix}oldest_age_ms"]
    ends = np.minimum(point_starts(window) + window.step_s, window.now_s)
    extrapolated = extrapolate_age(age, gauges.last[f"{prefix}depth"], gauges.seen_ms, ends)
    return {
        **_samples(points, "latency"),
        "max_age_ms": Numbers(np.where(gauges.carried, extrapolated, age)),
    }


def _concurrency(gauges: CarriedGauges, prefix: str) -> FieldColumns:
    running, limit = gauges.max[f"{prefix}running"], gauges.last[f"{prefix}limit"]
    used = np.where((running >= 0) & (limit > 0), 100 * running / np.maximum(limit, 1), ABSENT)
    return {"max": Numbers(running), "limit": Numbers(limit), "utilization_pct": Numbers(used, decimals=1)}
