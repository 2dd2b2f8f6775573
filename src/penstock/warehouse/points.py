"""What the tiers hold about one thing in one window: aggregated points, and the gauges from before it.

Answers come as columns of plain numbers, with -1 for what is not known: ten thousand points as Python
objects would cost more than ClickHouse needs to find them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.definitions import MetricDefinition
from penstock.warehouse.beside import beside
from penstock.warehouse.client import Warehouse
from penstock.warehouse.columns import (
    ABSENT,
    ANY,
    Selection,
    between,
    column_expressions,
    holds_name,
    percentile_names,
)
from penstock.warehouse.schema import FRESHNESS, table_gauges, tier_table
from penstock.warehouse.tiers import FINE, HOUR, MINUTE
from penstock.warehouse.windows import Window

Columns = dict[str, Sequence[Any]]

BEFORE = 0
"""The start of the one group of rows that lie before the window."""

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
    """The points that have rows: `places` maps a point's start in seconds to its place in the columns."""

    places: Mapping[int, int]
    columns: Mapping[str, Sequence[Any]]
    before: Before


def read_points(
    warehouse: Warehouse,
    definition: MetricDefinition,
    window: Window,
    selection: Selection,
    wanted: Collection[str] | None = None,
) -> Points:
    """The points of the window that have rows, with the `wanted` columns (all, unless said), and the state
    before it.

    One round trip for what was active shortly before the window, two for what was active within two days,
    three for what was idle longer. A gauge that a thing does not have (most have no limit) is looked for
    further back once a minute. Percentiles that are not written down are read beside the first, if they are
    the newest, or in one more.
    """
    # A wider point has several buckets, and percentiles of parts do not make those of the whole.
    written = window.tier.percentiles and window.step_s == window.tier.width_s
    expressions = column_expressions(definition, selection, written=written)
    gauges = [gauge.name for gauge in table_gauges(definition, selection.rollup)]
    names = [name for name in expressions if wanted is None or name in wanted]
    known = [name for name in gauges if f"{name}_last" in names]
    if known and "seen_ms" not in names:
        names.append("seen_ms")
    samples = [sample.name for sample in definition.samples]
    asked = [name for name in samples if not set(names).isdisjoint(percentile_names(name))]
    if written:
        names += [holds for name in asked if (holds := holds_name(name)) not in names]
    since = window.start_s - (LOOK_BACK * window.tier.width_s if known else 0)
    tier = _Tier(warehouse, definition, window, selection)
    newest = beside(tier.newest, asked, names) if written and asked else None
    columns = tier.read(names, expressions, between(since, window.end_s))
    places = {at: place for place, at in enumerate(columns.get("at", ()))}
    found: dict[str, Sequence[Any]] = {name: columns.get(f"c_{name}", ()) for name in names}
    place = places.pop(BEFORE, None)
    before = Before(dict.fromkeys(known))
    if place is not None:
        before = Before(
            {name: _known(found[f"{name}_last"][place]) for name in known}, _known(found["seen_ms"][place])
        )
    if newest is not None:
        tier.merge_the_rest(asked, newest.result(), places, found)
    missing = tuple(name for name, value in before.gauges.items() if value is None)
    if missing and (before.seen_ms is None or not _in_vain(definition, selection, missing)):
        further = _read_before(warehouse, definition, window, selection, known)
        if before.seen_ms is not None and all(further.gauges[name] is None for name in missing):
            _remember(definition, selection, missing)
        before = further
    return Points(places, found, before)


@dataclass(frozen=True, slots=True)
class _Tier:
    """The tier that answers, and what is asked of it."""

    warehouse: Warehouse
    definition: MetricDefinition
    window: Window
    selection: Selection

    def read(self, names: Sequence[str], expressions: Mapping[str, str], condition: str) -> Columns:
        """The points of the rows that fulfil the condition, by column."""
        window, selection = self.window, self.selection
        return self.warehouse.query_columns(
            f"SELECT toInt64(if(bucket < toDateTime({window.start_s}, 'UTC'), {BEFORE}, "
            f"intDiv(toUnixTimestamp(bucket), {window.step_s}) * {window.step_s})) AS at, "
            f"{', '.join(f'{expressions[name]} AS c_{name}' for name in names)} "
            f"FROM {tier_table(self.definition, window.tier, selection.rollup)} "
            f"WHERE {selection.where} AND {condition} GROUP BY at "
            f"{MANY_DAYS if window.tier is HOUR else QUICKLY}",
            selection.parameters,
        )

    def newest(self, samples: Sequence[str], wanted: Collection[str]) -> Columns:
        """The percentiles of the newest points, which cannot have been written down yet."""
        width = self.window.tier.width_s
        since = max(int(self.window.now_s - UNWRITTEN_S) // width * width, self.window.start_s)
        if since >= self.window.end_s:
            return {}
        names = _percentiles(samples, wanted)
        expressions = column_expressions(self.definition, self.selection)
        return self.read(names, expressions, between(since, self.window.end_s))

    def merge_the_rest(
        self,
        samples: Sequence[str],
        newest: Columns,
        places: Mapping[int, int],
        found: dict[str, Sequence[Any]],
    ) -> None:
        """Replace percentiles that do not speak for all samples of their point by those of its digests."""
        columns = [column for name in samples if 0 in (column := found[holds_name(name)])]
        starts = {at for at, place in places.items() if not all(column[place] for column in columns)}
        if not starts:
            return
        names = _percentiles(samples, found)
        merged = [newest]
        if missing := starts.difference(newest.get("at", ())):
            condition = between(min(missing), max(missing) + self.window.step_s)
            if len(missing) <= MOST_NAMED:
                named = ", ".join(f"toDateTime({at}, 'UTC')" for at in sorted(missing))
                condition += f" AND bucket IN ({named})"
            expressions = column_expressions(self.definition, self.selection)
            merged.append(self.read(names, expressions, condition))
        for name in names:
            values = list(found[name])
            for part in merged:
                for at, value in zip(part.get("at", ()), part.get(f"c_{name}", ()), strict=True):
                    if at in starts:
                        values[places[at]] = value
            found[name] = values


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
    expressions = column_expressions(definition, replace(selection, observed=ANY))
    columns = ", ".join(f"{expressions[name]} AS c_{name}" for name in names)
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
        [row] = warehouse.query(f"SELECT {columns} FROM ({source}) {QUICKLY}", selection.parameters)
        before = Before({name: _known(row[f"c_{name}_last"]) for name in gauges}, _known(row["c_seen_ms"]))
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


def _percentiles(samples: Sequence[str], wanted: Collection[str]) -> list[str]:
    return [name for sample in samples for name in percentile_names(sample) if name in wanted]


def _known(value: int) -> int | None:
    return None if value == ABSENT else value
