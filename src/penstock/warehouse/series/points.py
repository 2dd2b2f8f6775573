"""What the tiers hold about one thing in one window: aggregated points, and the gauges from before it.

Everything is columns of plain numbers, with -1 for what is not known: ten thousand points as Python objects
would cost more than ClickHouse needs to find them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.definitions import MetricDefinition
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import FRESHNESS_TABLE, table_gauges, tier_table
from penstock.warehouse.series.beside import beside
from penstock.warehouse.series.cache import Remembered, thing
from penstock.warehouse.series.last_known import LOOK_BACK, Before, look_back_s, look_further, newest_known
from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import (
    Reading,
    Selection,
    between,
    holds_name,
    percentile_names,
    readings,
)
from penstock.warehouse.series.row_queries import QUICKLY, SIDE_BY_SIDE, aggregated, as_they_lie, nothing
from penstock.warehouse.series.window import Window
from penstock.warehouse.tiers import HOUR

UNWRITTEN_S = 150
"""Buckets that ended this long ago have their percentiles written down, as a rule."""

MOST_ROWS = 3
"""Rows per point that are worth having as they lie."""

MOST_NAMED = 1_000
"""Buckets that are named one by one in a query; of more, everything from the first to the last is read."""


_many_rows = Remembered(600)
"""Things that have many rows per point."""


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a window: every column has one place for each, in order. Where nothing is known counts
    are 0 and everything else is ABSENT."""

    columns: Mapping[str, Column]
    before: Before


def read_points(
    warehouse: Warehouse,
    definition: MetricDefinition,
    window: Window,
    selection: Selection,
    wanted: Collection[str] | None = None,
) -> Points:
    """The points of the window, with the `wanted` columns (all, unless said), and the state before it.

    One round trip for what was active shortly before the window, two for what was active within two days,
    three for what was idle longer. A gauge that a thing does not have (most have no limit) is looked for
    further back once a minute. Percentiles that are not written down are read beside the first, if they are
    the newest, or in one more.
    """
    # A wider point has several buckets, and percentiles of parts do not make those of the whole.
    written = window.tier.stores_percentiles and window.step_s == window.tier.width_s
    known_ways = readings(definition, selection, written=written)
    gauges = [gauge.name for gauge in table_gauges(definition, selection.rollup)]
    names = [name for name in known_ways if wanted is None or name in wanted]
    known = [name for name in gauges if f"{name}_last" in names]
    if known and "seen_ms" not in names:
        names.append("seen_ms")
    samples = [sample.name for sample in definition.samples]
    asked = [name for name in samples if not set(names).isdisjoint(percentile_names(name))]
    if written:
        names += [holds for name in asked if (holds := holds_name(name)) not in names]
    ways = {name: known_ways[name] for name in names}
    tier = _Tier(warehouse, definition, window, selection)
    newest = beside(tier.newest, asked, names) if written and asked else None
    earlier_s = look_back_s(window) if known else 0
    span = between(window.start_s - earlier_s, window.end_s)
    rows = tier.read_as_they_lie(ways, span) if written else tier.read(ways, span)
    earlier = -(-earlier_s // window.step_s)
    places = tier.places(rows) + earlier
    found: dict[str, Column] = {}
    last_seen: dict[str, int | None] = {}
    for name, way in ways.items():
        column = np.full(earlier + len(window.buckets), way.nothing, rows[name].dtype)
        column[places] = rows[name]
        found[name] = column[earlier:]
        last_seen[name] = newest_known(column[:earlier])
    before = Before({name: last_seen[f"{name}_last"] for name in known}, last_seen.get("seen_ms"))
    if newest is not None:
        tier.merge_the_rest(asked, newest.result(), found)
    before = look_further(warehouse, definition, window, selection, before)
    return Points(found, before)


@dataclass(frozen=True, slots=True)
class _Tier:
    """The tier that answers, and what is asked of it."""

    warehouse: Warehouse
    definition: MetricDefinition
    window: Window
    selection: Selection

    def read(
        self, ways: Mapping[str, Reading], condition: str, settings: str | None = None
    ) -> dict[str, Column]:
        """What becomes of the rows that fulfil the condition: a value per point that has some, and `at`."""
        window, selection = self.window, self.selection
        at = "bucket" if window.step_s == window.tier.width_s else _start_of(window.step_s)
        settings = settings or (SIDE_BY_SIDE if window.tier is HOUR else QUICKLY)
        source = f"{self._rows(condition)} GROUP BY {at} {settings}"
        return aggregated(self.warehouse, ways, source, selection.parameters, f"toUnixTimestamp({at})")

    def read_as_they_lie(self, ways: Mapping[str, Reading], condition: str) -> dict[str, Column]:
        """The same of points as wide as the tier's buckets. A thing with many rows per point, such as a queue
        of many groups, is remembered and left to `read`."""
        window, selection = self.window, self.selection
        key = (thing(self.warehouse, self.definition, selection), window.tier.name)
        if key not in _many_rows:
            most = MOST_ROWS * (len(window.buckets) + LOOK_BACK)
            found = as_they_lie(self.warehouse, ways, self._rows(condition), selection.parameters, most)
            if found is not None:
                return found
            _many_rows.add(key)
        return self.read(ways, condition)

    def places(self, rows: Mapping[str, Column]) -> Column:
        """Where in the window the points lie; what lies before it is below 0."""
        return (rows["at"].astype(np.int64) - self.window.start_s) // self.window.step_s

    def newest(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Column]:
        """The percentiles of the newest points, which cannot have been written down yet."""
        width = self.window.tier.width_s
        since = max(int(self.window.now_s - UNWRITTEN_S) // width * width, self.window.start_s)
        ways = self._digests(samples, wanted)
        if since >= self.window.end_s:
            return nothing(ways)
        return self.read(ways, between(since, self.window.end_s), QUICKLY)

    def merge_the_rest(
        self, samples: Sequence[str], newest: Mapping[str, Column], found: dict[str, Column]
    ) -> None:
        """Replace percentiles that do not speak for all samples of their point by those of its digests."""
        hold = np.logical_and.reduce([found[holds_name(name)] != 0 for name in samples])
        wrong = np.flatnonzero(~hold)
        if not len(wrong):
            return
        parts = [newest]
        missing = np.setdiff1d(wrong, self.places(newest)) * self.window.step_s + self.window.start_s
        if len(missing):
            condition = between(int(missing[0]), int(missing[-1]) + self.window.step_s)
            if len(missing) <= MOST_NAMED:
                named = ", ".join(f"toDateTime({at}, 'UTC')" for at in missing)
                condition += f" AND bucket IN ({named})"
            parts.append(self.read(self._digests(samples, found), condition))
        for part in parts:
            places = self.places(part)
            chosen = np.isin(places, wrong)
            for name in part.keys() & found.keys():
                found[name][places[chosen]] = part[name][chosen]

    def _rows(self, condition: str) -> str:
        table = tier_table(self.definition, self.window.tier, self.selection.rollup)
        return f"FROM {table} WHERE {self.selection.where} AND {condition}"

    def _digests(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Reading]:
        ways = readings(self.definition, self.selection)
        names = [name for sample in samples for name in percentile_names(sample) if name in wanted]
        return {name: ways[name] for name in names}


def _start_of(step_s: int) -> str:
    return f"toDateTime(intDiv(toUnixTimestamp(bucket), {step_s}) * {step_s}, 'UTC')"


def newest_event(warehouse: Warehouse, definition: MetricDefinition) -> float | None:
    """The time of the newest event of this metric, in seconds since the epoch."""
    [row] = warehouse.query(
        f"SELECT max(newest_ms) AS newest FROM {FRESHNESS_TABLE} WHERE metric = {{metric:String}}",
        {"metric": definition.name},
    )
    return row["newest"] / 1000 if row["newest"] else None
