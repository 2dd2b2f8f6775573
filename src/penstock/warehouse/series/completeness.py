"""Completeness of a series: the newest counted event, and the events that were never counted.

Lost events have no time of their own, only an interval in which they happened. No point that overlaps such an
interval is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from penstock.clock import iso, to_utc
from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.rejected_events import REPLAYED_REASON
from penstock.warehouse.schema import FRESHNESS_TABLE, SET_ASIDE_TABLE
from penstock.warehouse.series.json_text import UNKNOWN_FLAG
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.series_columns import point_starts
from penstock.warehouse.series.window import SeriesWindow

LOSS_REASONS = ("dropped", "trimmed")
STREAM_REPLACED = "stream_replaced"
"""Reasons in the table of set-aside events; every other reason means that an event could not be read, or that
such an event was replayed."""


class CompletenessResponse(TypedDict):
    """The field `completeness` of a series response."""

    complete_until: str | None
    lost: int
    rejected: int
    streams_replaced: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """The completeness of a whole metric, not of one queue: the queue of an uncounted event is unknown.

    `newest_ms` is the time of the newest counted event. `lost` is the number of events that were dropped by
    an emitter or trimmed from a stream unread, `rejected` that of unreadable events, and `replaced` that of
    replaced streams, each of which loses an unknown number of events. The three cover all intervals that
    overlap the window and are kept for 31 days. `has_loss` says for each point whether one overlaps it.
    """

    newest_ms: int | None
    lost: int
    rejected: int
    replaced: int
    has_loss: Column

    @property
    def freshness(self) -> str | None:
        return None if self.newest_ms is None else iso(to_utc(self.newest_ms / 1000))

    def of_points(self, window: SeriesWindow, counted_until_s: float | None) -> Column:
        """Return for each point whether all events of its time were counted; UNKNOWN_FLAG if unknown."""
        if counted_until_s is None:
            return np.where(self.has_loss, 0, UNKNOWN_FLAG)
        return (point_starts(window) + window.step_s <= counted_until_s) & ~self.has_loss

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
    """Read the completeness of a window in one round trip.

    ClickHouse merges the intervals that end in the same point, so there are about as many rows as points at
    most. One more row has the newest event.
    """
    loss = f"reason IN {(*LOSS_REASONS, STREAM_REPLACED)}"
    rejected_events = f"if(reason = '{REPLAYED_REASON}', -1, 1) * toInt64(events)"
    columns = warehouse.query_columns(
        f"SELECT max(newest_ms) AS newest, toInt64(0) AS ends, toInt64(-1) AS begins, toUInt64(0) AS lost, "
        f"toUInt64(0) AS rejected, toUInt64(0) AS replaced "
        f"FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}} UNION ALL "
        f"SELECT toUInt64(0), toInt64(intDiv(toUnixTimestamp(at), {window.step_s})) AS point, "
        f"if({loss}, toInt64(min(toUnixTimestamp(began_at))), toInt64(-1)), "
        f"sumIf(events, reason IN {LOSS_REASONS}), "
        f"toUInt64(greatest(0, sumIf({rejected_events}, NOT {loss}))), "
        f"countIf(reason = '{STREAM_REPLACED}') FROM {SET_ASIDE_TABLE} "
        f"WHERE metric = {{metric:String}} AND at >= toDateTime({window.start_s}, 'UTC') "
        f"AND began_at < toDateTime({window.end_s}, 'UTC') GROUP BY point, {loss}",
        {"metric": definition.name},
    )
    newest, lost, rejected, replaced = (
        int(columns[name].sum()) for name in ("newest", "lost", "rejected", "replaced")
    )
    has_loss = np.zeros(len(window.buckets), dtype=np.bool_)
    for end, begins_s in zip(columns["ends"].tolist(), columns["begins"].tolist(), strict=True):
        if begins_s >= 0:
            first = max(0, (begins_s - window.start_s) // window.step_s)
            has_loss[first : end - window.start_s // window.step_s + 1] = True
    return Completeness(newest or None, lost, rejected, replaced, has_loss)


class LossInterval(NamedTuple):
    """A time in which events were lost, in seconds since the epoch."""

    start_s: int
    end_s: int


def read_loss_intervals(
    warehouse: Warehouse, definition: MetricDefinition, start_s: int, end_s: int
) -> list[LossInterval]:
    """Return the intervals of lost events that overlap a time, at most one per minute of their ends."""
    rows = warehouse.query(
        f"SELECT min(toUnixTimestamp(began_at)) AS started, max(toUnixTimestamp(at)) AS ended "
        f"FROM {SET_ASIDE_TABLE} WHERE metric = {{metric:String}} "
        f"AND reason IN {(*LOSS_REASONS, STREAM_REPLACED)} AND at >= toDateTime({start_s}, 'UTC') "
        f"AND began_at < toDateTime({end_s}, 'UTC') GROUP BY toStartOfMinute(at)",
        {"metric": definition.name},
    )
    return [LossInterval(row["started"], row["ended"]) for row in rows]


def read_newest_event_s(warehouse: Warehouse, definition: MetricDefinition) -> float | None:
    """Return the time of the metric's newest counted event, in seconds since the epoch."""
    [row] = warehouse.query(
        f"SELECT max(newest_ms) AS newest FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}}",
        {"metric": definition.name},
    )
    return row["newest"] / 1000 if row["newest"] else None
