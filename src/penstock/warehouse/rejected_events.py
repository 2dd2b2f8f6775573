"""Rejected events in ClickHouse: read those that are kept, and mark those that were replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import REJECTED_TABLE, SET_ASIDE_TABLE

REPLAYED_REASON = "replayed"
"""Reason of rows in `set_aside` that subtract replayed events from the rejected ones of the same time."""


class RejectedKey(NamedTuple):
    """Identifies a rejected event, in the order in which the table is read."""

    at_s: int
    stream: str
    entry: str


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """A rejected event that was not replayed. `fields` is empty if the event was too large to be kept."""

    key: RejectedKey
    reason: str
    fields: str


def count_kept(warehouse: Warehouse, metric: str) -> int:
    """Return the number of rejected events of a metric that were not replayed."""
    [row] = warehouse.query(
        f"SELECT count() AS events FROM {REJECTED_TABLE} FINAL "
        "WHERE metric = {metric:String} AND replayed = 0",
        {"metric": metric},
    )
    return int(row["events"])


def read_kept(warehouse: Warehouse, metric: str, after: RejectedKey, limit: int) -> list[KeptEvent]:
    """Return the next kept events after a key, in order."""
    rows = warehouse.query(
        "SELECT toUnixTimestamp(at) AS at_s, stream, entry, reason, fields "
        f"FROM {REJECTED_TABLE} FINAL WHERE metric = {{metric:String}} AND replayed = 0 AND "
        "(toUnixTimestamp(at), stream, entry) > ({at_s:UInt32}, {stream:String}, {entry:String}) "
        f"ORDER BY at, stream, entry LIMIT {limit}",
        {"metric": metric, **after._asdict()},
    )
    return [
        KeptEvent(
            RejectedKey(int(row["at_s"]), str(row["stream"]), str(row["entry"])),
            str(row["reason"]),
            str(row["fields"]),
        )
        for row in rows
    ]


def mark_replayed(warehouse: Warehouse, metric: str, keys: Sequence[RejectedKey], token: str) -> None:
    """Mark events as replayed, and subtract them from the rejected ones. Repeat it with the same token."""
    import pyarrow as pa  # 25 MB, which processes that only read need not load

    events = Counter((key.at_s, key.stream) for key in keys)
    times = pa.array([at_s for at_s, _ in events], pa.timestamp("s", "UTC"))
    warehouse.insert_once(
        SET_ASIDE_TABLE,
        pa.table(
            {
                "metric": pa.repeat(metric, len(events)),
                "reason": pa.repeat(REPLAYED_REASON, len(events)),
                "stream": pa.array([stream for _, stream in events]),
                "at": times,
                "began_at": times,
                "events": pa.array(list(events.values()), pa.uint64()),
                "example": pa.repeat("", len(events)),
            }
        ),
        token,
    )
    # A row without the text replaces the row of the event: only its key must be the same.
    warehouse.insert_once(
        REJECTED_TABLE,
        pa.table(
            {
                "metric": pa.repeat(metric, len(keys)),
                "reason": pa.repeat(REPLAYED_REASON, len(keys)),
                "stream": pa.array([key.stream for key in keys]),
                "at": pa.array([key.at_s for key in keys], pa.timestamp("s", "UTC")),
                "entry": pa.array([key.entry for key in keys]),
                "text": pa.repeat("", len(keys)),
                "fields": pa.repeat("", len(keys)),
                "replayed": pa.array([1] * len(keys), pa.uint8()),
            }
        ),
        token,
    )
