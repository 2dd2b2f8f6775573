"""The entries of a series: one per point, in the parts that a caller may choose from.

An answer can have ten thousand of them, so each part is made for all points at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from typing import Any

from penstock.errors import InvalidRequest
from penstock.warehouse.carry import Carried, grown_age
from penstock.warehouse.columns import ABSENT
from penstock.warehouse.points import Points
from penstock.warehouse.windows import Window

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
        "throughput": lambda: _counts(window, points, "throughput"),
        "queue_depth": lambda: _tops_and_lasts(gauges, f"{prefix}depth"),
        "delayed": lambda: _tops_and_lasts(gauges, f"{prefix}delayed"),
        "latency": lambda: _latencies(window, points, gauges, prefix),
        "runtime": lambda: _runtimes(window, points),
        "concurrency": lambda: _concurrency(gauges, prefix),
        "failures": lambda: _counts(window, points, "failures"),
    }
    parts = [makers[name]() for name in fields]
    names = ("timestamp", *fields, "carried", "complete")
    complete: Iterable[bool | None] = (
        [None] * len(window.buckets)
        if counted_until is None
        else [at + window.step_s <= counted_until for at in window.buckets]
    )
    rows = zip(_timestamps(window), *parts, gauges.carried, complete, strict=True)
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


def _timestamps(window: Window) -> Iterator[str]:
    """The points' starts as `clock.iso` would write them."""
    clocks: dict[int, str] = {}
    day, text = None, ""
    for at in window.buckets:
        today, second = divmod(at, 86_400)
        if today != day:
            day, text = today, (date(1970, 1, 1) + timedelta(days=today)).isoformat()
        clock = clocks.get(second)
        if clock is None:
            clock = clocks[second] = f"T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"
        yield text + clock


def _rows(window: Window, points: Points, columns: Iterable[str], absent: Any) -> Iterator[Sequence[Any]]:
    """The values of several columns per point; `absent` where it has no row."""
    rows = list(zip(*(points.columns[name] for name in columns), strict=True))
    places = points.places
    for at in window.buckets:
        place = places.get(at)
        yield absent if place is None else rows[place]


def _counts(window: Window, points: Points, field: str) -> Part:
    first, second, third = COUNTS[field]
    return [
        {first: a, second: b, third: c}
        for a, b, c in _rows(window, points, COUNTS[field].values(), (0, 0, 0))
    ]


def _runtimes(window: Window, points: Points) -> Part:
    rows = _rows(window, points, SAMPLES["runtime"].values(), (ABSENT, ABSENT))
    return [
        {"avg_ms": None, "p95_ms": None} if average < 0 else {"avg_ms": average, "p95_ms": p95}
        for average, p95 in rows
    ]


def _tops_and_lasts(gauges: Carried, name: str) -> Part:
    return [
        {"max": top, "last": last} for top, last in zip(gauges.highest[name], gauges.last[name], strict=True)
    ]


def _latencies(window: Window, points: Points, gauges: Carried, prefix: str) -> Part:
    ages = zip(
        window.buckets,
        gauges.highest[f"{prefix}oldest_age_ms"],
        gauges.last[f"{prefix}depth"],
        gauges.seen_ms,
        gauges.carried,
        strict=True,
    )
    oldest = [
        grown_age(age, depth, seen_ms, min(at + window.step_s, window.now_s)) if carried else age
        for at, age, depth, seen_ms, carried in ages
    ]
    rows = _rows(window, points, SAMPLES["latency"].values(), (ABSENT,) * 4)
    return [
        {
            "avg_wait_ms": None if average < 0 else average,
            "p50_wait_ms": None if average < 0 else p50,
            "p95_wait_ms": None if average < 0 else p95,
            "p99_wait_ms": None if average < 0 else p99,
            "max_age_ms": age,
        }
        for (average, p50, p95, p99), age in zip(rows, oldest, strict=True)
    ]


def _concurrency(gauges: Carried, prefix: str) -> Part:
    return [
        {
            "max": running,
            "limit": limit,
            "utilization_pct": round(100 * running / limit, 1) if running is not None and limit else None,
        }
        for running, limit in zip(
            gauges.highest[f"{prefix}running"], gauges.last[f"{prefix}limit"], strict=True
        )
    ]
