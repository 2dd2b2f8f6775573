"""The fields of a queue series that a request can select, and the columns they are built from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from penstock.errors import InvalidRequest


class SeriesFormat(StrEnum):
    """How a response holds the values of a series."""

    POINTS = "points"
    """A list `timeseries` with an object per point."""
    COLUMNS = "columns"
    """An object `columns` with a list per field: a third of the size."""


COUNTER_COLUMNS = {
    "throughput": {
        "enqueued": "enqueued",
        "dequeued": "dequeued",
        "completed": "acked",
        "released": "released",
    },
    "failures": {"nack": "nacked", "dlq": "dead", "ttl_expired": "expired", "rate": "acked"},
}
SAMPLE_COLUMNS = {
    "latency": {
        "avg_wait_ms": "wait_ms_avg",
        "p50_wait_ms": "wait_ms_p50",
        "p95_wait_ms": "wait_ms_p95",
        "p99_wait_ms": "wait_ms_p99",
    },
    "runtime": {"avg_ms": "run_ms_avg", "p95_ms": "run_ms_p95"},
}
GAUGE_COLUMNS = {
    "queue_depth": ("depth_max", "depth_last"),
    "delayed": ("delayed_max", "delayed_last"),
    "latency": ("oldest_age_ms_max", "oldest_age_ms_last", "depth_last"),
    "concurrency": ("running_max", "running_last", "limit_last"),
}
FIELDS = ("throughput", "queue_depth", "delayed", "latency", "runtime", "concurrency", "failures")
"""The fields of an entry, in the order of the response."""


def select_fields(requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested fields, or all for None. Raises InvalidRequest for an unknown field."""
    if requested is None:
        return FIELDS
    unknown = [name for name in requested if name not in FIELDS]
    if unknown or not requested:
        problem = f"{', '.join(map(repr, unknown))} cannot be selected" if unknown else "the list is empty"
        raise InvalidRequest(f"fields: {problem}. Known fields are {', '.join(FIELDS)}.", field="fields")
    return tuple(name for name in FIELDS if name in requested)


def required_columns(fields: Iterable[str], prefix: str) -> set[str]:
    """Return the columns that the fields are built from. Gauges also need the time of their observation."""
    columns = {"seen_ms"}
    for name in fields:
        columns |= set(COUNTER_COLUMNS.get(name, {}).values()) | set(SAMPLE_COLUMNS.get(name, {}).values())
        columns |= {prefix + column for column in GAUGE_COLUMNS.get(name, ())}
    return columns
