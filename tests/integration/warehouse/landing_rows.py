"""Build and insert rows of the landing table, given only the values that a test needs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa

from penstock.definitions import QUEUE, MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import landing_table


def landing_schema(definition: MetricDefinition = QUEUE) -> pa.Schema:
    fields = [
        *(pa.field(dimension.name, pa.string()) for dimension in definition.dimensions),
        pa.field("at", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.int64()) for name in ("events", "newest_ms", "seen_ms", "seen_id")),
        *(pa.field(counter.name, pa.int64()) for counter in definition.counters),
    ]
    for gauge in definition.gauges:
        fields += [pa.field(f"{gauge.name}_max", pa.int64()), pa.field(f"{gauge.name}_last", pa.int64())]
    fields += [pa.field(sample.name, pa.list_(pa.int64())) for sample in definition.samples]
    return pa.schema(fields)


def landing_row(
    time_s: float,
    *,
    queue: str = "orders",
    group: str = "",
    organization: str = "default",
    project: str = "default",
    environment: str = "default",
    seen_s: float | None = None,
    wait_ms: tuple[int, ...] = (),
    run_ms: tuple[int, ...] = (),
    **measures: int | tuple[int, int],
) -> dict[str, Any]:
    """Return one row of the queue metric. A gauge is one value, or a pair of maximum and last value."""
    gauges = {gauge.name for gauge in QUEUE.gauges} & set(measures)
    seen_ms = int((time_s if seen_s is None else seen_s) * 1000) if gauges else None
    row: dict[str, Any] = {
        "organization": organization,
        "project": project,
        "environment": environment,
        "queue": queue,
        "group": group,
        "at": int(time_s // 5 * 5) * 1_000_000,
        "events": 1,
        "newest_ms": int(time_s * 1000),
        "seen_ms": seen_ms,
        "seen_id": None if seen_ms is None else seen_ms << 22,
        "wait_ms": list(wait_ms),
        "run_ms": list(run_ms),
    }
    row |= {counter.name: measures.get(counter.name, 0) for counter in QUEUE.counters}
    for gauge in QUEUE.gauges:
        value = measures.get(gauge.name)
        highest, last = value if isinstance(value, tuple) else (value, value)
        row |= {f"{gauge.name}_max": highest, f"{gauge.name}_last": last}
    return row


def insert_rows(
    warehouse: Warehouse,
    *rows: dict[str, Any],
    token: str | None = None,
    table: str = landing_table(QUEUE),
) -> None:
    """Insert landing rows under a deduplication token."""
    content = pa.Table.from_pylist(list(rows), schema=landing_schema())
    warehouse.insert_once(table, content, token or uuid4().hex)
