"""The gauges' last values before a window, however long ago they were seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_table
from penstock.warehouse.series.cache import Remembered, thing
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import ABSENT, ANY, Selection, between, readings
from penstock.warehouse.series.row_queries import QUICKLY, aggregated
from penstock.warehouse.series.window import Window
from penstock.warehouse.tiers import FINE, HOUR, MINUTE

LOOK_BACK = 48
"""How many buckets before the window are read with it: what is active was seen there."""

RECENT_S = LOOK_BACK * HOUR.width_s
"""What was last seen together: a gauge that others outlived by this much is not there any more."""

_without = Remembered(60)
"""Gauges that a thing does not have; most have no limit."""

_nothing = Remembered(60)
"""Things of which nothing was seen before a time."""


@dataclass(frozen=True, slots=True)
class Before:
    """The gauges' last values before a window, and when they were seen."""

    gauges: Mapping[str, int | None]
    seen_ms: int | None = None


def look_back_s(window: Window) -> int:
    return LOOK_BACK * window.tier.width_s


def look_further(
    warehouse: Warehouse, definition: MetricDefinition, window: Window, selection: Selection, near: Before
) -> Before:
    """What was seen of gauges that are not known yet; `near` is what the look back told.

    Of the last two days whole hours come from the hour tier, the minutes after them from the minute tier and
    the rest from the 5-second tier: together everything once, and nothing younger than its tier's retention
    is asked for. If nothing was seen then, the newest hour in which something was is looked up.
    """
    missing = tuple(name for name, value in near.gauges.items() if value is None)
    asked = thing(warehouse, definition, selection)
    without = (asked, missing)
    # A window that starts within the same look back would have found what was seen in between.
    nothing = (asked, window.tier.name, window.start_s // look_back_s(window))
    if not missing or (nothing in _nothing if near.seen_ms is None else without in _without):
        return near
    sources = _Sources(definition, window, selection, tuple(near.gauges))
    if window.tier is not HOUR:  # where the look back is the last two days
        found = sources.read(warehouse, sources.recent())
        if near.seen_ms is not None and all(found.gauges[name] is None for name in missing):
            _without.add(without)
        if found.seen_ms is not None:
            return found
    if near.seen_ms is not None:
        return near
    found = sources.read(warehouse, sources.older())
    if found.seen_ms is None:
        _nothing.add(nothing)
    return found


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where rows from before a window lie."""

    definition: MetricDefinition
    window: Window
    selection: Selection
    gauges: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return ["seen_ms", *(f"{name}_last" for name in self.gauges)]

    @property
    def hour_s(self) -> int:
        return self.window.start_s // HOUR.width_s * HOUR.width_s

    def recent(self) -> str:
        """Of the last two days."""
        hour, minute = self.hour_s, self.window.start_s // MINUTE.width_s * MINUTE.width_s
        parts = [(HOUR, hour - RECENT_S, hour), (MINUTE, hour, minute), (FINE, minute, self.window.start_s)]
        return " UNION ALL ".join(
            self._rows(tier_table(self.definition, tier, self.selection.rollup), between(since, until))
            for tier, since, until in parts
            if until > since
        )

    def older(self) -> str:
        """Of the newest hour before, and of what was seen together with it."""
        hours = tier_table(self.definition, HOUR, self.selection.rollup)
        before = between(0, self.hour_s - RECENT_S)
        newest = f"SELECT max(bucket) FROM {hours} WHERE {self._chosen} AND isNotNull(seen_ms) AND {before}"
        return self._rows(hours, f"bucket > ({newest}) - INTERVAL {RECENT_S} SECOND AND {before}")

    def read(self, warehouse: Warehouse, source: str) -> Before:
        ways = readings(self.definition, replace(self.selection, observed=ANY))
        found = aggregated(
            warehouse,
            {name: ways[name] for name in self.names},
            f"FROM ({source}) {QUICKLY}",
            self.selection.parameters,
        )
        gauges = {name: newest_known(found[f"{name}_last"]) for name in self.gauges}
        return Before(gauges, newest_known(found["seen_ms"]))

    @property
    def _chosen(self) -> str:
        return f"{self.selection.where} AND ({self.selection.observed})"

    def _rows(self, table: str, condition: str) -> str:
        return f"SELECT {', '.join(self.names)} FROM {table} WHERE {self._chosen} AND {condition}"


def newest_known(column: Column) -> int | None:
    known = column[column != ABSENT]
    return int(known[-1]) if len(known) else None
