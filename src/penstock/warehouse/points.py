"""What the tiers hold about one thing in one window: aggregated points, and the gauges from before it.

Everything is columns of plain numbers, with -1 for what is not known: ten thousand points as Python objects
would cost more than ClickHouse needs to find them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.definitions import MetricDefinition
from penstock.warehouse.beside import beside
from penstock.warehouse.client import Warehouse
from penstock.warehouse.columns import (
    ABSENT,
    ANY,
    Reading,
    Selection,
    between,
    holds_name,
    percentile_names,
    readings,
)
from penstock.warehouse.native import Column
from penstock.warehouse.schema import FRESHNESS, table_gauges, tier_table
from penstock.warehouse.tiers import FINE, HOUR, MINUTE
from penstock.warehouse.windows import Window

LOOK_BACK = 48
"""How many buckets before the window are read with it: what is active was seen there."""

RECENT_S = 2 * 86_400
"""What was last seen together: a gauge that others outlived by this much is not there any more."""

QUICKLY = "SETTINGS max_threads = 1, optimize_move_to_prewhere = 0"
"""A series is a few thousand rows that the primary key finds in small granules: a second thread, or a first
look at the key columns alone, costs more than it saves."""

MANY_DAYS = "SETTINGS max_threads = 2, optimize_move_to_prewhere = 0"
"""Hours lie in a part per day, and opening a month of those takes longer than reading them."""

UNWRITTEN_S = 150
"""Buckets that ended this long ago have their percentiles written down, as a rule."""

MOST_NAMED = 1_000
"""Buckets that are named one by one in a query; of more, everything from the first to the last is read."""


@dataclass(frozen=True, slots=True)
class Before:
    """The gauges' last values before a window, and when they were seen."""

    gauges: Mapping[str, int | None]
    seen_ms: int | None = None


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
    written = window.tier.percentiles and window.step_s == window.tier.width_s
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
    look_back_s = LOOK_BACK * window.tier.width_s if known else 0
    rows = tier.read(ways, between(window.start_s - look_back_s, window.end_s))
    earlier = -(-look_back_s // window.step_s)
    places = tier.places(rows) + earlier
    found: dict[str, Column] = {}
    last_seen: dict[str, int | None] = {}
    for name, way in ways.items():
        column = np.full(earlier + len(window.buckets), way.nothing, rows[name].dtype)
        column[places] = rows[name]
        found[name] = column[earlier:]
        last_seen[name] = _last(column[:earlier])
    before = Before({name: last_seen[f"{name}_last"] for name in known}, last_seen.get("seen_ms"))
    if newest is not None:
        tier.merge_the_rest(asked, newest.result(), found)
    missing = tuple(name for name, value in before.gauges.items() if value is None)
    if missing and (before.seen_ms is None or not _in_vain(definition, selection, missing)):
        further = _read_before(warehouse, definition, window, selection, known)
        if before.seen_ms is not None and all(further.gauges[name] is None for name in missing):
            _remember(definition, selection, missing)
        before = further
    return Points(found, before)


@dataclass(frozen=True, slots=True)
class _Tier:
    """The tier that answers, and what is asked of it."""

    warehouse: Warehouse
    definition: MetricDefinition
    window: Window
    selection: Selection

    def read(self, ways: Mapping[str, Reading], condition: str) -> dict[str, Column]:
        """What becomes of the rows that fulfil the condition: a value per point that has some, and `at`."""
        window, selection = self.window, self.selection
        at = "bucket" if window.step_s == window.tier.width_s else _start_of(window.step_s)
        return _values(
            self.warehouse,
            ways,
            f"FROM {tier_table(self.definition, window.tier, selection.rollup)} "
            f"WHERE {selection.where} AND {condition} GROUP BY {at} "
            f"{MANY_DAYS if window.tier is HOUR else QUICKLY}",
            selection.parameters,
            at=f"toUnixTimestamp({at})",
        )

    def places(self, rows: Mapping[str, Column]) -> Column:
        """Where in the window the points lie; what lies before it is below 0."""
        return (rows["at"].astype(np.int64) - self.window.start_s) // self.window.step_s

    def newest(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Column]:
        """The percentiles of the newest points, which cannot have been written down yet."""
        width = self.window.tier.width_s
        since = max(int(self.window.now_s - UNWRITTEN_S) // width * width, self.window.start_s)
        ways = self._digests(samples, wanted)
        if since >= self.window.end_s:
            return _nothing(ways)
        return self.read(ways, between(since, self.window.end_s))

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

    def _digests(self, samples: Sequence[str], wanted: Collection[str]) -> dict[str, Reading]:
        ways = readings(self.definition, self.selection)
        names = [name for sample in samples for name in percentile_names(sample) if name in wanted]
        return {name: ways[name] for name in names}


def _values(
    warehouse: Warehouse,
    ways: Mapping[str, Reading],
    source: str,
    parameters: Mapping[str, Any],
    at: str = "0",
) -> dict[str, Column]:
    """What the ways make of the source's rows, and `at`."""
    aggregates = {name: sql for way in ways.values() for name, sql in way.aggregates.items()}
    # An alias named like a column would shadow it.
    selected = [f"{at} AS c_at", *(f"{sql} AS c_{name}" for name, sql in aggregates.items())]
    answer = warehouse.query_columns(f"SELECT {', '.join(selected)} {source}", parameters)
    if not answer:
        return _nothing(ways)
    of = {name: answer[f"c_{name}"] for name in aggregates}
    return {"at": answer["c_at"], **{name: way.value(of) for name, way in ways.items()}}


def _nothing(ways: Mapping[str, Reading]) -> dict[str, Column]:
    return {name: np.empty(0, np.int64) for name in ("at", *ways)}


def _start_of(step_s: int) -> str:
    return f"toDateTime(intDiv(toUnixTimestamp(bucket), {step_s}) * {step_s}, 'UTC')"


def _last(column: Column) -> int | None:
    """The newest value that is known."""
    known = column[column != ABSENT]
    return int(known[-1]) if len(known) else None


def _read_before(
    warehouse: Warehouse,
    definition: MetricDefinition,
    window: Window,
    selection: Selection,
    gauges: list[str],
) -> Before:
    """The state before the window, however long ago it was seen.

    Of the last two days whole hours come from the hour tier, the minutes after them from the minute tier and
    the rest from the 5-second tier: together everything once, and nothing younger than its tier's retention
    is asked for. If nothing was seen then, the newest hour in which something was is looked up.
    """
    hour = window.start_s // HOUR.width_s * HOUR.width_s
    minute = window.start_s // MINUTE.width_s * MINUTE.width_s
    recent = hour - RECENT_S
    names = ["seen_ms", *(f"{name}_last" for name in gauges)]
    known_ways = readings(definition, replace(selection, observed=ANY))
    ways = {name: known_ways[name] for name in names}
    chosen = f"{selection.where} AND ({selection.observed})"

    def rows(table: str, condition: str) -> str:
        return f"SELECT {', '.join(names)} FROM {table} WHERE {chosen} AND {condition}"

    tables = {tier: tier_table(definition, tier, selection.rollup) for tier in (HOUR, MINUTE, FINE)}
    parts = [(HOUR, recent, hour), (MINUTE, hour, minute), (FINE, minute, window.start_s)]
    near = [rows(tables[tier], between(since, until)) for tier, since, until in parts if until > since]
    newest = (
        f"(SELECT max(bucket) FROM {tables[HOUR]} "
        f"WHERE {chosen} AND isNotNull(seen_ms) AND {between(0, recent)})"
    )
    far = rows(tables[HOUR], f"bucket > {newest} - INTERVAL {RECENT_S} SECOND AND {between(0, recent)}")
    before = Before(dict.fromkeys(gauges))
    for source in (" UNION ALL ".join(near), far):
        found = _values(warehouse, ways, f"FROM ({source}) {QUICKLY}", selection.parameters)
        before = Before({name: _last(found[f"{name}_last"]) for name in gauges}, _last(found["seen_ms"]))
        if before.seen_ms is not None:
            break
    return before


_looked_for: dict[tuple[object, ...], float] = {}
"""What was looked for in vain, and until when that is remembered."""

REMEMBERED_S, MOST_REMEMBERED = 60.0, 10_000


def _in_vain(definition: MetricDefinition, selection: Selection, gauges: tuple[str, ...]) -> bool:
    return _looked_for.get(_key(definition, selection, gauges), 0.0) > time.monotonic()


def _remember(definition: MetricDefinition, selection: Selection, gauges: tuple[str, ...]) -> None:
    if len(_looked_for) >= MOST_REMEMBERED:
        _looked_for.clear()
    _looked_for[_key(definition, selection, gauges)] = time.monotonic() + REMEMBERED_S


def _key(definition: MetricDefinition, selection: Selection, gauges: tuple[str, ...]) -> tuple[object, ...]:
    return (definition.name, selection.rollup, tuple(sorted(selection.parameters.items())), gauges)


def newest_event(warehouse: Warehouse, definition: MetricDefinition) -> float | None:
    """The time of the newest event of this metric, in seconds since the epoch."""
    [row] = warehouse.query(
        f"SELECT max(newest_ms) AS newest FROM {FRESHNESS} WHERE metric = {{metric:String}}",
        {"metric": definition.name},
    )
    return row["newest"] / 1000 if row["newest"] else None
