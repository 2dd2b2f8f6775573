"""Whether what a window shows is all there is: how far events were counted, and which never were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.clock import iso, to_utc
from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import FRESHNESS_TABLE, SET_ASIDE_TABLE
from penstock.warehouse.series.window import Window

LOST, REPLACED = "trimmed", "stream_replaced"


@dataclass(frozen=True, slots=True)
class Completeness:
    """Told of a whole metric, not of one queue: what was not counted belongs to nobody any more.

    `newest_ms` is the time of the newest event counted. `lost` events were cut from a stream unread,
    `rejected` ones could not be read; `replaced` is how often a stream was found replaced, which loses an
    unknown number. All three are those noted within the window, and kept for 31 days.
    """

    newest_ms: int | None
    lost: int
    rejected: int
    replaced: int

    @property
    def freshness(self) -> str | None:
        return None if self.newest_ms is None else iso(to_utc(self.newest_ms / 1000))

    def described(self, counted_until: float | None) -> dict[str, Any]:
        """As the API tells it. `counted_until`: every event up to then was counted; None: nobody knows."""
        return {
            "complete_until": None if counted_until is None else iso(to_utc(counted_until)),
            "lost": self.lost,
            "rejected": self.rejected,
            "streams_replaced": self.replaced,
        }


def read_completeness(warehouse: Warehouse, definition: MetricDefinition, window: Window) -> Completeness:
    """One round trip."""
    found = warehouse.query_columns(
        f"SELECT (SELECT max(newest_ms) FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}}) AS newest, "
        f"sumIf(events, reason = '{LOST}') AS lost, "
        f"sumIf(events, reason NOT IN ('{LOST}', '{REPLACED}')) AS rejected, "
        f"countIf(reason = '{REPLACED}') AS replaced FROM {SET_ASIDE_TABLE} WHERE metric = {{metric:String}} "
        f"AND at >= toDateTime({window.start_s}, 'UTC') AND at < toDateTime({window.end_s}, 'UTC')",
        {"metric": definition.name},
    )
    newest, *counts = (int(found[name][0]) for name in ("newest", "lost", "rejected", "replaced"))
    return Completeness(newest or None, *counts)
