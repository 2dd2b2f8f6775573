"""Completeness of a series: the newest counted event, and the events that were never counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from penstock.clock import iso, to_utc
from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import FRESHNESS_TABLE, SET_ASIDE_TABLE
from penstock.warehouse.series.window import SeriesWindow

TRIMMED, STREAM_REPLACED = "trimmed", "stream_replaced"
"""Reasons in the table of set-aside events; every other reason means that an event could not be read."""


class CompletenessResponse(TypedDict):
    """The field `completeness` of a series response."""

    complete_until: str | None
    lost: int
    rejected: int
    streams_replaced: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """The completeness of a whole metric, not of one queue: the queue of an uncounted event is unknown.

    `newest_ms` is the time of the newest counted event. `lost` is the number of events that were trimmed from
    a stream unread, `rejected` that of unreadable events, and `replaced` that of replaced streams, each of
    which loses an unknown number of events. The last three cover the window and are kept for 31 days.
    """

    newest_ms: int | None
    lost: int
    rejected: int
    replaced: int

    @property
    def freshness(self) -> str | None:
        return None if self.newest_ms is None else iso(to_utc(self.newest_ms / 1000))

    def to_response(self, counted_until_s: float | None) -> CompletenessResponse:
        """Return the JSON fields. All events up to `counted_until_s` were counted; None means unknown."""
        return {
            "complete_until": None if counted_until_s is None else iso(to_utc(counted_until_s)),
            "lost": self.lost,
            "rejected": self.rejected,
            "streams_replaced": self.replaced,
        }


def read_completeness(
    warehouse: Warehouse, definition: MetricDefinition, window: SeriesWindow
) -> Completeness:
    """Read the completeness of a window in one round trip."""
    row = warehouse.query_columns(
        f"SELECT (SELECT max(newest_ms) FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}}) AS newest, "
        f"sumIf(events, reason = '{TRIMMED}') AS lost, "
        f"sumIf(events, reason NOT IN ('{TRIMMED}', '{STREAM_REPLACED}')) AS rejected, "
        f"countIf(reason = '{STREAM_REPLACED}') AS replaced FROM {SET_ASIDE_TABLE} "
        f"WHERE metric = {{metric:String}} "
        f"AND at >= toDateTime({window.start_s}, 'UTC') AND at < toDateTime({window.end_s}, 'UTC')",
        {"metric": definition.name},
    )
    newest, *counts = (int(row[name][0]) for name in ("newest", "lost", "rejected", "replaced"))
    return Completeness(newest or None, *counts)


def read_newest_event_s(warehouse: Warehouse, definition: MetricDefinition) -> float | None:
    """Return the time of the metric's newest counted event, in seconds since the epoch."""
    [row] = warehouse.query(
        f"SELECT max(newest_ms) AS newest FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}}",
        {"metric": definition.name},
    )
    return row["newest"] / 1000 if row["newest"] else None
