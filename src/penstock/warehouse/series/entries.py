"""The entries of a series: one per point, in the parts that a caller may choose from.

An answer can have ten thousand of them, so each part is made for all points at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from penstock.errors import InvalidRequest
from penstock.warehouse.series.carry_forward import Carried, grown_age
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.window import Window

Part = Iterable[dict[str, Any]]

COUNTS = {
    "throughput": {"enqueued": "enqueued", "dequeued": "dequeued", "completed": "acked"},
    "failures": {"nack": "nacked", "dlq": "dead", "ttl_expired": "expired"},
}
SAMPLES = {
    "latency": {
        "avg_wait_ms": "wait_ms_avg",
        "p50_wait_ms": "wait_ms_p50",
        "p95_wait_ms": "wait_ms_p95",
        "p99_wait_ms": "wait_ms_p99",
    },
    "runtime": {"avg_ms": "run_ms_avg", "p95_ms": "run_ms_p95"},
}
GAUGES = {
    "queue_depth": ("depth_max", "depth_last"),
    "delayed": ("delayed_max", "delayed_last"),
    "latency": ("oldest_age_ms_max", "oldest_age_ms_last", "depth_last"),
    "concurrency": ("running_max", "running_last", "limit_last"),
}
FIELDS = ("throughput", "queue_depth", "delayed", "latency", "runtime", "concurrency", "failures")
"""The parts of an entry, in the order they are given."""


def chosen_fields(given: Sequence[str] | None) -> tuple[str, ...]:
    """The parts asked for, all if none were named; raises InvalidRequest for one that is not known."""
    if given is None:
        return FIELDS
    unknown = [name for name in given if name not in FIELDS]
    if unknown or not given:
        named = ", ".join(map(repr, unknown)) or "nothing"
        raise InvalidRequest(
            f"fields: {named} cannot be chosen; known are {', '.join(FIELDS)}", field="fields"
        )
    return tuple(name for name in FIELDS if name in given)


def columns_of(fields: Iterable[str], prefix: str) -> set[str]:
    """The columns that these parts are made of. What has a gauge also needs to know when it was seen."""
    wanted = {"seen_ms"}
    for name in fields:
        wanted |= set(COUNTS.get(name, {}).values()) | set(SAMPLES.get(name, {}).values())
        wanted |= {prefix + column for column in GAUGES.get(name, ())}
    return wanted


def entries(
    window: Window,
    points: Points,
    gauges: Carried,
    fields: Sequence[str],
    prefix: str,
    counted_until: float | None,
) -> list[dict[str, Any]]:
    """One entry per point of the window, in order: its time, the parts, and two marks.

    `carried`: nothing was observed in its time, the gauges are from before. `complete`: every event of its
    time was counted; null when nobody knows.
    """
    makers: dict[str, Callable[[], Part]] = {
        "throughput": lambda: _counts(points, "throughput"),
        "queue_depth": lambda: _tops_and_lasts(gauges, f"{prefix}depth"),
        "delayed": lambda: _tops_and_lasts(gauges, f"{prefix}delayed"),
        "latency": lambda: _latencies(window, points, gauges, prefix),
        "runtime": lambda: _runtimes(points),
        "concurrency": lambda: _concurrency(gauges, prefix),
        "failures": lambda: _counts(points, "failures"),
    }
    parts = [makers[name]() for name in fields]
    names = ("timestamp", *fields, "carried", "complete")
    complete: Iterable[bool | None] = (
        [None] * len(window.buckets)
        if counted_until is None
        else [at + window.step_s <= counted_until for at in window.buckets]
    )
    rows = zip(_timestamps(window), *parts, gauges.carried.tolist(), complete, strict=True)
    if tuple(fields) != FIELDS:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return [  # the usual case, in half the time
        {
            "timestamp": at,
            "throughput": throughput,
            "queue_depth": depth,
            "delayed": delayed,
            "latency": latency,
            "runtime": runtime,
            "concurrency": concurrency,
            "failures": failures,
            "carried": carried,
            "complete": whole,
        }
        for at, throughput, depth, delayed, latency, runtime, concurrency, failures, carried, whole in rows
    ]


def _timestamps(window: Window) -> list[str]:
    """The points' starts as `clock.iso` would write them."""
    starts = np.array(window.buckets, "datetime64[s]").astype("datetime64[ms]")
    written: list[str] = np.datetime_as_string(starts, timezone="UTC").tolist()
    return written


def known(values: Column) -> list[Any]:
    """Plain numbers, with None for those that are absent."""
    plain: list[Any] = values.tolist()
    if (values == ABSENT).any():
        return [None if value == ABSENT else value for value in plain]
    return plain


def _counts(points: Points, field: str) -> Part:
    first, second, third = COUNTS[field]
    columns = (points.columns[name].tolist() for name in COUNTS[field].values())
    return [{first: a, second: b, third: c} for a, b, c in zip(*columns, strict=True)]


def _runtimes(points: Points) -> Part:
    columns = (known(points.columns[name]) for name in SAMPLES["runtime"].values())
    return [{"avg_ms": average, "p95_ms": p95} for average, p95 in zip(*columns, strict=True)]


def _tops_and_lasts(gauges: Carried, name: str) -> Part:
    rows = zip(known(gauges.highest[name]), known(gauges.last[name]), strict=True)
    return [{"max": top, "last": last} for top, last in rows]


def _latencies(window: Window, points: Points, gauges: Carried, prefix: str) -> Part:
    age = gauges.highest[f"{prefix}oldest_age_ms"]
    ends = np.minimum(np.array(window.buckets) + window.step_s, window.now_s)
    grown = grown_age(age, gauges.last[f"{prefix}depth"], gauges.seen_ms, ends)
    columns = (
        *(points.columns[name] for name in SAMPLES["latency"].values()),
        np.where(gauges.carried, grown, age),
    )
    return [
        {
            "avg_wait_ms": average,
            "p50_wait_ms": p50,
            "p95_wait_ms": p95,
            "p99_wait_ms": p99,
            "max_age_ms": oldest,
        }
        for average, p50, p95, p99, oldest in zip(*map(known, columns), strict=True)
    ]


def _concurrency(gauges: Carried, prefix: str) -> Part:
    running, limit = gauges.highest[f"{prefix}running"], gauges.last[f"{prefix}limit"]
    used = np.where((running >= 0) & (limit > 0), np.round(100 * running / np.maximum(limit, 1), 1), ABSENT)
    return [
        {"max": top, "limit": most, "utilization_pct": percent}
        for top, most, percent in zip(known(running), known(limit), known(used), strict=True)
    ]
