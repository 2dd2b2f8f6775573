"""Find the last values of gauges before a window, however old they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.series.cache import SeriesCache, subject_key
from penstock.warehouse.series.merge import ANY_ROW
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import (
    ABSENT,
    SINGLE_THREAD,
    Selection,
    bucket_between,
    build_readings,
    query_aggregated,
)
from penstock.warehouse.series.window import SeriesWindow
from penstock.warehouse.tiers import FINE, HOUR, MINUTE

LOOKBACK_BUCKETS = 48
"""Buckets before the window that are read together with it: an active queue was observed there."""

RECENT_S = LOOKBACK_BUCKETS * HOUR.width_s
"""A gauge is gone if the other gauges of its queue were observed this much later."""


@dataclass(frozen=True, slots=True)
class LastKnown:
    """The last values of gauges before a window, and the time of the last observation."""

    gauges: Mapping[str, int | None]
    seen_ms: int | None = None


def lookback_s(window: SeriesWindow) -> int:
    """Return the length of the time before the window that is read together with it."""
    return LOOKBACK_BUCKETS * window.tier.width_s


def find_last_known(
    warehouse: Warehouse,
    cache: SeriesCache,
    definition: MetricDefinition,
    window: SeriesWindow,
    selection: Selection,
    from_lookback: LastKnown,
) -> LastKnown:
    """Return the last known gauges. `from_lookback` are those found in the lookback; others are queried.

    Of the last two days the hour tier covers the whole hours, the minute tier the minutes after them, and the
    5-second tier the rest. Together they cover everything once, within the retention of each tier. If nothing
    was observed in these two days, the newest hour with an observation is used.
    """
    missing = tuple(name for name, value in from_lookback.gauges.items() if value is None)
    subject = subject_key(definition, selection)
    gauges_key = (subject, missing)
    # A later window within the same lookback would read any observation made in between.
    history_key = (subject, window.tier.name, window.start_s // lookback_s(window))
    if not missing or (
        history_key in cache.no_history
        if from_lookback.seen_ms is None
        else gauges_key in cache.missing_gauges
    ):
        return from_lookback
    history = _HistoryQueries(definition, window, selection, tuple(from_lookback.gauges))
    if window.tier is not HOUR:  # the lookback of the hour tier is the last two days
        recent = history.read(warehouse, history.recent_rows())
        if from_lookback.seen_ms is not None and all(recent.gauges[name] is None for name in missing):
            cache.missing_gauges.add(gauges_key)
        if recent.seen_ms is not None:
            return recent
    if from_lookback.seen_ms is not None:
        return from_lookback
    older = history.read(warehouse, history.older_rows())
    if older.seen_ms is None:
        cache.no_history.add(history_key)
    return older


@dataclass(frozen=True, slots=True)
class _HistoryQueries:
    """Queries over the rows before a window."""

    definition: MetricDefinition
    window: SeriesWindow
    selection: Selection
    gauges: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return ["seen_ms", *(f"{name}_last" for name in self.gauges)]

    @property
    def start_hour_s(self) -> int:
        return self.window.start_s // HOUR.width_s * HOUR.width_s

    def recent_rows(self) -> str:
        """SQL of the rows of the last two days."""
        hour, minute = self.start_hour_s, self.window.start_s // MINUTE.width_s * MINUTE.width_s
        spans = [(HOUR, hour - RECENT_S, hour), (MINUTE, hour, minute), (FINE, minute, self.window.start_s)]
        return " UNION ALL ".join(
            self._rows(tier_table(self.definition, tier, self.selection.rollup), bucket_between(since, until))
            for tier, since, until in spans
            if until > since
        )

    def older_rows(self) -> str:
        """SQL of the newest hour with an observation before that, and of the two days up to it."""
        table = tier_table(self.definition, HOUR, self.selection.rollup)
        is_older = bucket_between(0, self.start_hour_s - RECENT_S)
        newest = (
            f"SELECT max(bucket) FROM {table} WHERE {self._observed} AND isNotNull(seen_ms) AND {is_older}"
        )
        return self._rows(table, f"bucket > ({newest}) - INTERVAL {RECENT_S} SECOND AND {is_older}")

    def read(self, warehouse: Warehouse, rows: str) -> LastKnown:
        """Return the newest values among the rows."""
        readings = build_readings(self.definition, replace(self.selection, gauge_condition=ANY_ROW))
        newest = query_aggregated(
            warehouse,
            {name: readings[name] for name in self.columns},
            f"FROM ({rows}) {SINGLE_THREAD}",
            self.selection.parameters,
        )
        gauges = {name: last_present_value(newest[f"{name}_last"]) for name in self.gauges}
        return LastKnown(gauges, last_present_value(newest["seen_ms"]))

    @property
    def _observed(self) -> str:
        return f"{self.selection.where} AND ({self.selection.gauge_condition})"

    def _rows(self, table: str, condition: str) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {table} WHERE {self._observed} AND {condition}"


def last_present_value(column: Column) -> int | None:
    """Return the last value of the column that is not ABSENT, or None."""
    present = column[column != ABSENT]
    return int(present[-1]) if len(present) else None
