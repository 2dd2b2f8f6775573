"""Events that are not counted, by metric and reason: trimmed, dropped by an emitter, or rejected."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import SET_ASIDE_TABLE


@dataclass(frozen=True, slots=True)
class UncountedEvents:
    """Events of one metric and reason in the last 31 days. `example` is of the newest of them."""

    metric: str
    reason: str
    events: int
    first_s: int
    last_s: int
    stream: str
    example: str


def read_uncounted_events(warehouse: Warehouse) -> list[UncountedEvents]:
    """Return one row per metric and reason, the newest first."""
    rows = warehouse.query(
        "SELECT metric, reason, toUInt64(sum(events)) AS events, min(toUnixTimestamp(began_at)) AS first_s, "
        "max(toUnixTimestamp(at)) AS last_s, argMax(stream, at) AS stream, argMax(example, at) AS example "
        f"FROM {SET_ASIDE_TABLE} GROUP BY metric, reason ORDER BY last_s DESC, metric, reason"
    )
    return [UncountedEvents(**row) for row in rows]
