"""Queue events for reports, written as landing rows to ClickHouse or as files to an archive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.definitions import QUEUE
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import landing_table

DIMENSIONS = [dimension.name for dimension in QUEUE.dimensions]
COUNTERS = [counter.name for counter in QUEUE.counters]
GAUGES = [gauge.name for gauge in QUEUE.gauges]
SAMPLES = [sample.name for sample in QUEUE.samples]


def queue_event(at_s: float, queue: str, group: str = "", **values: Any) -> dict[str, Any]:
    """Return one event in the schema of the archive; values that are not given are empty."""
    at_ms = int(at_s * 1000)
    row: dict[str, Any] = {
        **dict.fromkeys(DIMENSIONS, "default"),
        "queue": queue,
        "group": group,
        "at_ms": at_ms,
        "id_ms": at_ms,
        "id_sequence": 0,
        **dict.fromkeys(COUNTERS, 0),
        **dict.fromkeys(GAUGES),
        **{name: [] for name in SAMPLES},
    }
    assert not set(values) - set(row), set(values) - set(row)
    return row | values


def insert_events(warehouse: Warehouse, events: Iterable[dict[str, Any]]) -> None:
    """Insert the events into the landing table, and so into every tier."""
    fields = [
        *(pa.field(name, pa.string()) for name in DIMENSIONS),
        pa.field("at", pa.timestamp("ms", "UTC")),
        *(pa.field(name, pa.int64()) for name in ("events", "newest_ms", "seen_ms", "seen_id", *COUNTERS)),
        *(pa.field(f"{name}_{kind}", pa.int64()) for name in GAUGES for kind in ("max", "last")),
        *(pa.field(name, pa.list_(pa.int64())) for name in SAMPLES),
    ]
    table = pa.Table.from_pylist([_landing_row(event) for event in events], schema=pa.schema(fields))
    warehouse.insert_once(landing_table(QUEUE), table, uuid4().hex)


def archive_events(archive: Path, events: Iterable[dict[str, Any]]) -> None:
    """Write the events to an archive: two batches per day."""
    schema = pa.schema(
        [
            *(pa.field(name, pa.string()) for name in DIMENSIONS),
            *(pa.field(name, pa.int64()) for name in ("at_ms", "id_ms", "id_sequence", *COUNTERS, *GAUGES)),
            *(pa.field(name, pa.list_(pa.int64())) for name in SAMPLES),
        ]
    )
    files = defaultdict(list)
    for number, event in enumerate(events):
        day = datetime.fromtimestamp(event["at_ms"] / 1000, UTC).date()
        files[f"day={day}/batch=some-query-{number % 2}"].append(event)
    for directory, rows in files.items():
        (archive / QUEUE.name / directory).mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema=schema), archive / QUEUE.name / directory / "part-0.parquet"
        )


def _landing_row(event: dict[str, Any]) -> dict[str, Any]:
    has_gauges = any(event[name] is not None for name in GAUGES)
    row = {name: event[name] for name in (*DIMENSIONS, *COUNTERS, *SAMPLES)}
    row |= {"at": event["at_ms"] // 5_000 * 5_000, "events": 1, "newest_ms": event["at_ms"]}
    row |= {
        "seen_ms": event["at_ms"] if has_gauges else None,
        "seen_id": event["id_ms"] << 22 if has_gauges else None,
    }
    for name in GAUGES:
        row |= {f"{name}_max": event[name], f"{name}_last": event[name]}
    return row
