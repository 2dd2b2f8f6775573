"""Build the entries of a queue series: one JSON object per point, with the requested fields.

A response may have ten thousand entries, so each field is built for all points at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from penstock.warehouse.series.carry_forward import CarriedGauges, extrapolate_age
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.series_fields import COUNTER_COLUMNS, FIELDS, SAMPLE_COLUMNS
from penstock.warehouse.series.window import SeriesWindow

SeriesEntry = dict[str, Any]
"""One point of a series, as JSON."""

FieldValues = Iterable[dict[str, float | None]]
"""The JSON objects of one field, one per point."""


def build_entries(
    window: SeriesWindow,
    points: Points,
    gauges: CarriedGauges,
    fields: Sequence[str],
    prefix: str,
    complete: Sequence[bool | None],
) -> list[SeriesEntry]:
    """Return one entry per point of the window, in order: its time, the fields, and two flags.

    `carried`: nothing was observed in the point's time, so its gauges come from an earlier point. `complete`:
    all events of its time were counted.
    """
    builders: dict[str, Callable[[], FieldValues]] = {
        "throughput": lambda: _throughput(points),
        "queue_depth": lambda: _max_and_last(gauges, f"{prefix}depth"),
        "delayed": lambda: _max_and_last(gauges, f"{prefix}delayed"),
        "latency": lambda: _latency(window, points, gauges, prefix),
        "runtime": lambda: _runtime(points),
        "concurrency": lambda: _concurrency(gauges, prefix),
        "failures": lambda: _failures(points),
    }
    field_values = [builders[name]() for name in fields]
    names = ("timestamp", *fields, "carried", "complete")
    rows = zip(_timestamps(window), *field_values, gauges.carried.tolist(), complete, strict=True)
    if tuple(fields) != FIELDS:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return [  # the common case, in half the time
        {
            "timestamp": timestamp,
            "throughput": throughput,
            "queue_depth": depth,
            "delayed": delayed,
            "latency": latency,
            "runtime": runtime,
            "concurrency": concurrency,
            "failures": failures,
            "carried": carried,
            "complete": is_complete,
        }
        for (
            timestamp,
            throughput,
            depth,
            delayed,
            latency,
            runtime,
            concurrency,
            failures,
            carried,
            is_complete,
        ) in rows
    ]


def _timestamps(window: SeriesWindow) -> list[str]:
    """Return the start of each point in the format of `clock.iso`."""
    starts = np.array(window.buckets, "datetime64[s]").astype("datetime64[ms]")
    timestamps: list[str] = np.datetime_as_string(starts, timezone="UTC").tolist()
    return timestamps


def to_json_numbers(values: Column) -> list[float | None]:
    """Return Python numbers, with None for absent values."""
    numbers: list[float | None] = values.tolist()
    if (values == ABSENT).any():
        return [None if number == ABSENT else number for number in numbers]
    return numbers


def _throughput(points: Points) -> FieldValues:
    columns = (points.columns[name].tolist() for name in COUNTER_COLUMNS["throughput"].values())
    return [
        {"enqueued": enqueued, "dequeued": dequeued, "completed": completed, "released": released}
        for enqueued, dequeued, completed, released in zip(*columns, strict=True)
    ]


def _failures(points: Points) -> FieldValues:
    """Return the failures, and the share of finished attempts that failed; null without attempts."""
    nacked, dead, expired, acked = (points.columns[name] for name in COUNTER_COLUMNS["failures"].values())
    failed = nacked.astype(np.int64) + dead.astype(np.int64)
    attempts = failed + acked.astype(np.int64)
    rate = np.where(attempts > 0, np.round(failed / np.maximum(attempts, 1), 4), ABSENT)
    columns = (nacked.tolist(), dead.tolist(), expired.tolist(), to_json_numbers(rate))
    return [
        {"nack": nack, "dlq": dlq, "ttl_expired": ttl_expired, "rate": share}
        for nack, dlq, ttl_expired, share in zip(*columns, strict=True)
    ]


def _runtime(points: Points) -> FieldValues:
    columns = (to_json_numbers(points.columns[name]) for name in SAMPLE_COLUMNS["runtime"].values())
    return [{"avg_ms": average, "p95_ms": p95} for average, p95 in zip(*columns, strict=True)]


def _max_and_last(gauges: CarriedGauges, name: str) -> FieldValues:
    rows = zip(to_json_numbers(gauges.max[name]), to_json_numbers(gauges.last[name]), strict=True)
    return [{"max": highest, "last": last} for highest, last in rows]


def _latency(window: SeriesWindow, points: Points, gauges: CarriedGauges, prefix: str) -> FieldValues:
    age = gauges.max[f"{prefix}oldest_age_ms"]
    ends = np.minimum(np.array(window.buckets) + window.step_s, window.now_s)
    extrapolated = extrapolate_age(age, gauges.last[f"{prefix}depth"], gauges.seen_ms, ends)
    columns = (
        *(points.columns[name] for name in SAMPLE_COLUMNS["latency"].values()),
        np.where(gauges.carried, extrapolated, age),
    )
    return [
        {
            "avg_wait_ms": average,
            "p50_wait_ms": p50,
            "p95_wait_ms": p95,
            "p99_wait_ms": p99,
            "max_age_ms": oldest,
        }
        for average, p50, p95, p99, oldest in zip(*map(to_json_numbers, columns), strict=True)
    ]


def _concurrency(gauges: CarriedGauges, prefix: str) -> FieldValues:
    running, limit = gauges.max[f"{prefix}running"], gauges.last[f"{prefix}limit"]
    used = np.where((running >= 0) & (limit > 0), np.round(100 * running / np.maximum(limit, 1), 1), ABSENT)
    return [
        {"max": highest, "limit": maximum, "utilization_pct": percent}
        for highest, maximum, percent in zip(
            to_json_numbers(running), to_json_numbers(limit), to_json_numbers(used), strict=True
        )
    ]
