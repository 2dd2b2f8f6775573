"""What the tiers hold about one thing in one window: aggregated points, and the gauges from before it.

Generic over metric definitions. Rows are always aggregated on reading: ClickHouse merges them in its own
time, and until then one bucket may lie in several rows.

Answers come as columns of plain numbers, with -1 for what is not known: ten thousand points as Python
objects would cost more than ClickHouse needs to find them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.definitions import MetricDefinition
from penstock.warehouse.client import Warehouse
from penstock.warehouse.schema import FRESHNESS, QUANTILE_FUNCTION, QUANTILES, table_gauges, tier_table
from penstock.warehouse.tiers import FINE, HOUR, MINUTE
from penstock.warehouse.windows import Window

ANY = "1"
ABSENT = -1
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


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows speak for the thing asked about.

    `where` and `parameters` select its rows and must pin the tenant. `counted` says per counter or sample,
    `observed` for all gauges, which of those rows to use: SQL conditions, all rows unless said otherwise.
    `rollup` names the rollup whose tables are read; without it they are the metric's own.
    """

    where: str
    parameters: Mapping[str, Any]
    counted: Mapping[str, str] = field(default_factory=dict)
    observed: str = ANY
    rollup: str | None = None


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


def column_expressions(definition: MetricDefinition, selection: Selection) -> dict[str, str]:
    """What can be read of a metric, by name, as SQL over the rows of a point.

    Each counter under its name; `<gauge>_max` and `<gauge>_last`; per sample `_count`, `_avg`, `_max` and
    `_p50`, `_p95`, `_p99`; `seen_ms`, when a gauge was last observed. What is not known is -1.
    """
    observed = selection.observed
    found = {"seen_ms": f"toInt64(ifNull(max{_if(observed)}(seen_ms{_and(observed)}), {ABSENT}))"}
    for counter in definition.counters:
        condition = selection.counted.get(counter.name, ANY)
        found[counter.name] = f"toInt64(sum{_if(condition)}({counter.name}{_and(condition)}))"
    for gauge in table_gauges(definition, selection.rollup):
        name = gauge.name
        highest = f"max{_if(observed)}({name}_max{_and(observed)})"
        newest = f"argMaxMerge{_if(observed)}({name}_last{_and(observed)})"
        found[f"{name}_max"] = f"toInt64(ifNull({highest}, {ABSENT}))"
        found[f"{name}_last"] = f"toInt64(ifNull({newest}, {ABSENT}))"
    for sample in definition.samples:
        condition = selection.counted.get(sample.name, ANY)
        name, merge = sample.name, QUANTILE_FUNCTION.replace("(", f"Merge{_if(condition)}(", 1)
        count, total, highest = (
            f"{function}{_if(condition)}({name}_{part}{_and(condition)})"
            for function, part in (("sum", "count"), ("sum", "sum"), ("max", "max"))
        )
        found[f"{name}_count"] = f"toInt64({count})"
        found[f"{name}_max"] = f"if({count} = 0, {ABSENT}, toInt64({highest}))"
        found[f"{name}_avg"] = f"if({count} = 0, {ABSENT}., round({total} / {count}, 2))"
        for place, level in enumerate(QUANTILES, start=1):
            quantile = f"toFloat64({merge}({name}_digest{_and(condition)})[{place}])"
            found[f"{name}_p{level * 100:g}"] = f"if({count} = 0, {ABSENT}., round({quantile}, 2))"
    return found


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
    further back once a minute.
    """
    expressions = column_expressions(definition, selection)
    gauges = [gauge.name for gauge in table_gauges(definition, selection.rollup)]
    names = [name for name in expressions if wanted is None or name in wanted]
    known = [name for name in gauges if f"{name}_last" in names]
    if known and "seen_ms" not in names:
        names.append("seen_ms")
    since = window.start_s - (LOOK_BACK * window.tier.width_s if known else 0)
    columns = warehouse.query_columns(
        f"SELECT toInt64(if(bucket < toDateTime({window.start_s}, 'UTC'), {BEFORE}, "
        f"intDiv(toUnixTimestamp(bucket), {window.step_s}) * {window.step_s})) AS at, "
        f"{', '.join(f'{expressions[name]} AS c_{name}' for name in names)} "
        f"FROM {tier_table(definition, window.tier, selection.rollup)} "
        f"WHERE {selection.where} AND {_between(since, window.end_s)} GROUP BY at "
        f"{MANY_DAYS if window.tier is HOUR else QUICKLY}",
        selection.parameters,
    )
    places = {at: place for place, at in enumerate(columns.get("at", ()))}
    found = {name: columns.get(f"c_{name}", ()) for name in names}
    place = places.pop(BEFORE, None)
    before = Before(dict.fromkeys(known))
    if place is not None:
        before = Before(
            {name: _known(found[f"{name}_last"][place]) for name in known}, _known(found["seen_ms"][place])
        )
    missing = tuple(name for name, value in before.gauges.items() if value is None)
    if missing and (before.seen_ms is None or not _in_vain(definition, selection, missing)):
        further = _read_before(warehouse, definition, window, selection, known)
        if before.seen_ms is not None and all(further.gauges[name] is None for name in missing):
            _remember(definition, selection, missing)
        before = further
    return Points(places, found, before)


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
    near = [rows(tables[tier], _between(since, until)) for tier, since, until in parts if until > since]
    newest = (
        f"(SELECT max(bucket) FROM {tables[HOUR]} "
        f"WHERE {chosen} AND isNotNull(seen_ms) AND {_between(0, recent)})"
    )
    far = rows(tables[HOUR], f"bucket > {newest} - INTERVAL {RECENT_S} SECOND AND {_between(0, recent)}")
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


def _between(since_s: int, until_s: int) -> str:
    return f"bucket >= toDateTime({since_s}, 'UTC') AND bucket < toDateTime({until_s}, 'UTC')"


def _known(value: int) -> int | None:
    return None if value == ABSENT else value


def _if(condition: str) -> str:
    return "" if condition == ANY else "If"


def _and(condition: str) -> str:
    return "" if condition == ANY else f", {condition}"
