"""What the tiers hold about one thing in one window: aggregated points, and the gauges from before it.

Generic over metric definitions. Rows are always aggregated on reading: ClickHouse merges them in its own
time, and until then one bucket may lie in several rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.definitions import Measure, MetricDefinition
from penstock.warehouse.client import Warehouse
from penstock.warehouse.schema import FRESHNESS, QUANTILE_FUNCTION, QUANTILES, table_gauges, tier_table
from penstock.warehouse.tiers import FINE, HOUR, MINUTE
from penstock.warehouse.windows import Window

ANY = "1"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows speak for the thing asked about.

    `where` and `parameters` select its rows and must pin the tenant. `counted` says per counter or sample,
    `observed` for all gauges, which of those rows to use: SQL conditions, all rows unless said otherwise.
    `rollup` names the rollup whose tables are read; without it they are the metric's own.
    """

    where: str
    parameters: Mapping[str, Any]
    counted: Mapping[str, str]
    observed: str = ANY
    rollup: str | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """The gauges' last values before a window, when they were seen, and the newest event of any kind."""

    gauges: Mapping[str, int | None]
    seen_ms: int | None
    newest_ms: int | None


def read_points(
    warehouse: Warehouse, definition: MetricDefinition, window: Window, selection: Selection
) -> dict[int, dict[str, Any]]:
    """The points that have events, by their start in seconds; one round trip.

    Keys: each counter; `<gauge>_max` and `<gauge>_last` (None: not observed) and `seen_ms`; per sample
    `_count`, `_sum`, `_max` and `_quantiles`.
    """
    gauges = table_gauges(definition, selection.rollup)
    columns = [f"max{_if(selection.observed)}(seen_ms{_and(selection.observed)}) AS seen"]
    for counter in definition.counters:
        condition = selection.counted.get(counter.name, ANY)
        columns.append(f"sum{_if(condition)}({counter.name}{_and(condition)}) AS {counter.name}_total")
    for gauge in gauges:
        condition = selection.observed
        columns += [
            f"max{_if(condition)}({gauge.name}_max{_and(condition)}) AS {gauge.name}_highest",
            f"argMaxMerge{_if(condition)}({gauge.name}_last{_and(condition)}) AS {gauge.name}_newest",
        ]
    for sample in definition.samples:
        condition = selection.counted.get(sample.name, ANY)
        merge = QUANTILE_FUNCTION.replace("(", f"Merge{_if(condition)}(", 1)
        columns += [
            f"sum{_if(condition)}({sample.name}_count{_and(condition)}) AS {sample.name}_numbers",
            f"sum{_if(condition)}({sample.name}_sum{_and(condition)}) AS {sample.name}_total",
            f"max{_if(condition)}({sample.name}_max{_and(condition)}) AS {sample.name}_highest",
            f"{merge}({sample.name}_digest{_and(condition)}) AS {sample.name}_quantiles",
        ]
    rows = warehouse.query(
        f"SELECT intDiv(toUnixTimestamp(bucket), {window.step_s}) * {window.step_s} AS at, "
        f"{', '.join(columns)} FROM {tier_table(definition, window.tier, selection.rollup)} "
        f"WHERE {selection.where} AND bucket >= toDateTime({window.start_s}, 'UTC') "
        f"AND bucket < toDateTime({window.end_s}, 'UTC') GROUP BY at",
        selection.parameters,
    )
    return {int(row["at"]): _point(definition, gauges, row) for row in rows}


def read_before(
    warehouse: Warehouse, definition: MetricDefinition, window: Window, selection: Selection
) -> Before:
    """The state before the window, however long ago it was seen; one round trip.

    Whole hours come from the hour tier, the minutes after them from the minute tier, and the rest from the
    5-second tier. Together they cover everything before the window once, in a few thousand rows at most, and
    none of it has to be younger than its tier's retention.
    """
    hour = window.start_s // HOUR.width_s * HOUR.width_s
    minute = window.start_s // MINUTE.width_s * MINUTE.width_s
    parts = [(HOUR, 0, hour), (MINUTE, hour, minute), (FINE, minute, window.start_s)]
    gauges = table_gauges(definition, selection.rollup)
    names = ", ".join(["seen_ms", *(f"{gauge.name}_last" for gauge in gauges)])
    sources = " UNION ALL ".join(
        f"SELECT {names} FROM {tier_table(definition, tier, selection.rollup)} WHERE {selection.where} "
        f"AND ({selection.observed}) AND bucket >= toDateTime({since}, 'UTC') "
        f"AND bucket < toDateTime({until}, 'UTC')"
        for tier, since, until in parts
        if until > since
    )
    columns = [
        *(f"argMaxMerge({gauge.name}_last) AS {gauge.name}_newest" for gauge in gauges),
        "max(seen_ms) AS seen",
        f"(SELECT max(newest_ms) FROM {FRESHNESS} WHERE metric = '{definition.name}') AS newest",
    ]
    (row,) = warehouse.query(f"SELECT {', '.join(columns)} FROM ({sources})", selection.parameters)
    return Before(
        {gauge.name: row[f"{gauge.name}_newest"] for gauge in gauges},
        row["seen"],
        row["newest"] or None,
    )


def newest_event(warehouse: Warehouse, definition: MetricDefinition) -> float | None:
    """The time of the newest event of this metric, in seconds since the epoch."""
    [row] = warehouse.query(
        f"SELECT max(newest_ms) AS newest FROM {FRESHNESS} WHERE metric = {{metric:String}}",
        {"metric": definition.name},
    )
    return row["newest"] / 1000 if row["newest"] else None


def _point(
    definition: MetricDefinition, gauges: tuple[Measure, ...], row: Mapping[str, Any]
) -> dict[str, Any]:
    point: dict[str, Any] = {"seen_ms": row["seen"]}
    for counter in definition.counters:
        point[counter.name] = int(row[f"{counter.name}_total"])
    for gauge in gauges:
        point[f"{gauge.name}_max"] = row[f"{gauge.name}_highest"]
        point[f"{gauge.name}_last"] = row[f"{gauge.name}_newest"]
    for sample in definition.samples:
        count = int(row[f"{sample.name}_numbers"])
        point[f"{sample.name}_count"] = count
        point[f"{sample.name}_sum"] = int(row[f"{sample.name}_total"])
        point[f"{sample.name}_max"] = row[f"{sample.name}_highest"] if count else None
        point[f"{sample.name}_quantiles"] = (
            list(row[f"{sample.name}_quantiles"]) if count else [None] * len(QUANTILES)
        )
    return point


def _if(condition: str) -> str:
    return "" if condition == ANY else "If"


def _and(condition: str) -> str:
    return "" if condition == ANY else f", {condition}"
