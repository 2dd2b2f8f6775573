"""The ClickHouse tables of a metric, made from its definition.

Per metric there is a landing table that stores nothing, and one table per tier that a materialized view fills
from the landing table. So one insert reaches every tier, under one deduplication token, and a tier never
depends on another. Nothing is averaged on the way: sums, maxima, last values and digests merge without error.
Percentiles beside a digest (`percentiles`) are the only columns that no view fills.

The landing row is the contract with the pipeline: the dimensions, `at` (the bucket's start), `events`,
`newest_ms` (the newest event's time), `seen_ms` and `seen_id` (time and stream id of the last
observation of a gauge), the counters, `<gauge>_max` and `<gauge>_last` (null: not observed), and
each sample as an array.

A rollup (`queue_environment_5s` beside `queue_5s`) is filled from the same landing table in the same way, so
it too gets every event once. Its tables hold the rollup's gauges, the metric's own tables the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.definitions import Dimension, Measure, MetricDefinition, Rollup
from penstock.warehouse.series import packed_maximum
from penstock.warehouse.tiers import TIERS, Tier

QUANTILES = (0.5, 0.95, 0.99)
QUANTILE_FUNCTION = f"quantilesTDigestArray({', '.join(map(str, QUANTILES))})"

DEDUPLICATION_WINDOW = 1_000
"""Tokens each table remembers. A batch is only ever repeated right after a crash, so few would do."""

ONE_FILE_BYTES = 1 << 40
"""A part of a day never gets this large."""

ONE_PART_AFTER_S = 3600
"""When a day has got nothing new for so long, ClickHouse puts its parts together."""

SET_ASIDE = "set_aside"
FRESHNESS = "freshness"
TIME_CODEC = "CODEC(Delta, ZSTD(1))"


@dataclass(frozen=True, slots=True)
class TierTable:
    """One table that an insert into the landing table fills; `rollup` is None for the metric's own."""

    name: str
    tier: Tier
    rollup: str | None


def landing_table(definition: MetricDefinition) -> str:
    return f"{definition.name}_landing"


def tier_table(definition: MetricDefinition, tier: Tier, rollup: str | None = None) -> str:
    return "_".join((definition.name, *((rollup,) if rollup else ()), tier.name))


def tier_tables(definition: MetricDefinition) -> tuple[TierTable, ...]:
    """All tables that hold the metric's events, fine to coarse, the metric's own before its rollups."""
    rollups: list[str | None] = [None, *(rollup.name for rollup in definition.rollups)]
    return tuple(
        TierTable(tier_table(definition, tier, rollup), tier, rollup) for rollup in rollups for tier in TIERS
    )


def shared_statements() -> list[str]:
    """The tables that all metrics share."""
    return [
        _table(
            SET_ASIDE,
            [
                "metric LowCardinality(String)",
                "reason LowCardinality(String)",
                "stream LowCardinality(String)",
                f"at DateTime('UTC') {TIME_CODEC}",
                "events UInt64",
                "example String",
            ],
            engine="MergeTree",
            order_by="metric, reason, at",
            partition_by="toDate(at)",
            ttl="at + INTERVAL 31 DAY",
        ),
        _table(
            FRESHNESS,
            ["metric LowCardinality(String)", "newest_ms SimpleAggregateFunction(max, UInt64)"],
            engine="AggregatingMergeTree",
            order_by="metric",
        ),
    ]


def statements(definition: MetricDefinition) -> list[str]:
    """Everything one metric needs, in an order that works, each statement safe to repeat."""
    tables = tier_tables(definition)
    return [
        _landing(definition),
        *(_tier(definition, table) for table in tables),
        *(_view(definition, table) for table in tables),
        _freshness_view(definition),
    ]


def copy_statements(definition: MetricDefinition, suffix: str) -> list[str]:
    """The same landing table, tier tables and views again, under names that end in `suffix`.

    For computing tiers anew beside the live ones. The copies keep everything until they are dropped, and
    filling them does not touch the metric's freshness.
    """
    tables = tier_tables(definition)
    return [
        _landing(definition, suffix),
        *(_tier(definition, table, suffix, forgets=False) for table in tables),
        *(_view(definition, table, suffix) for table in tables),
    ]


def _landing(definition: MetricDefinition, suffix: str = "") -> str:
    columns = [
        *(f"`{dimension.name}` {_dimension_type(dimension)}" for dimension in definition.dimensions),
        "at DateTime('UTC')",
        "events UInt64",
        "newest_ms UInt64",
        "seen_ms Nullable(UInt64)",
        "seen_id Nullable(UInt64)",
        *(f"{counter.name} UInt64" for counter in definition.counters),
    ]
    for gauge in definition.gauges:
        columns += [f"{gauge.name}_max Nullable(UInt64)", f"{gauge.name}_last Nullable(UInt64)"]
    columns += [f"{sample.name} Array(UInt64)" for sample in definition.samples]
    return f"CREATE TABLE IF NOT EXISTS {landing_table(definition)}{suffix}\n{_block(columns)}\nENGINE = Null"


def _tier(definition: MetricDefinition, table: TierTable, suffix: str = "", *, forgets: bool = True) -> str:
    dimensions = _dimensions(definition, table)
    columns = [
        *(f"`{dimension.name}` {_dimension_type(dimension)}" for dimension in dimensions),
        f"bucket DateTime('UTC') {TIME_CODEC}",
        "events SimpleAggregateFunction(sum, UInt64)",
        "seen_ms SimpleAggregateFunction(max, Nullable(UInt64))",
        *(f"{counter.name} SimpleAggregateFunction(sum, UInt64)" for counter in definition.counters),
    ]
    for gauge in table_gauges(definition, table.rollup):
        columns += [
            f"{gauge.name}_max SimpleAggregateFunction(max, Nullable(UInt64))",
            f"{gauge.name}_last {packed_maximum.TYPE}",
        ]
    for sample in definition.samples:
        columns += [
            f"{sample.name}_count SimpleAggregateFunction(sum, UInt64)",
            f"{sample.name}_sum SimpleAggregateFunction(sum, UInt64)",
            f"{sample.name}_max SimpleAggregateFunction(max, UInt64)",
            f"{sample.name}_digest AggregateFunction({QUANTILE_FUNCTION}, Array(UInt64))",
        ]
        if table.tier.percentiles:
            columns.append(f"{sample.name}_percentiles {packed_maximum.TYPE}")
    return _table(
        table.name + suffix,
        columns,
        engine="AggregatingMergeTree",
        order_by=", ".join(key_columns(definition, table)),
        partition_by="toDate(bucket)",
        ttl=f"bucket + INTERVAL {table.tier.days} DAY" if forgets else None,
        more_settings=(f"index_granularity = {table.tier.granule}", *one_file_settings(table.tier)),
    )


def one_file_settings(tier: Tier) -> list[str]:
    """What makes a series of many days quick: few parts and few files to open."""
    if not tier.one_file:
        return []
    return [
        f"min_age_to_force_merge_seconds = {ONE_PART_AFTER_S}",
        "min_age_to_force_merge_on_partition_only = 1",
        f"min_bytes_for_wide_part = {ONE_FILE_BYTES}",
    ]


def _view(definition: MetricDefinition, table: TierTable, suffix: str = "") -> str:
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {table.name}{suffix}_view\n"
        f"TO {table.name}{suffix} AS\n{view_query(definition, table, suffix)}"
    )


def view_query(definition: MetricDefinition, table: TierTable, suffix: str = "") -> str:
    """What the table's view selects from the landing table.

    A migration changes a view by `ALTER TABLE … MODIFY QUERY`, so that it is never missing while rows land.
    """
    gauges = table_gauges(definition, table.rollup)
    dimensions = _names(_dimensions(definition, table))
    # Columns are qualified because an alias named like a column would shadow it.
    columns = [
        *dimensions,
        f"toStartOfInterval(landing.at, INTERVAL {table.tier.width_s} SECOND, 'UTC') AS bucket",
        "sum(landing.events) AS events",
        _seen(definition, gauges),
        *(f"sum(landing.{counter.name}) AS {counter.name}" for counter in definition.counters),
    ]
    for gauge in gauges:
        last = f"landing.{gauge.name}_last"
        seen = packed_maximum.observation(
            f"assumeNotNull({last})", "toUnixTimestamp(landing.at)", "assumeNotNull(landing.seen_id)"
        )
        columns += [
            f"max(landing.{gauge.name}_max) AS {gauge.name}_max",
            f"max(if(isNull({last}), {packed_maximum.NOTHING}, {seen})) AS {gauge.name}_last",
        ]
    for sample in definition.samples:
        columns += [
            f"sum(length(landing.{sample.name})) AS {sample.name}_count",
            f"sum(arraySum(landing.{sample.name})) AS {sample.name}_sum",
            f"max(arrayMax(landing.{sample.name})) AS {sample.name}_max",
            f"{_state(QUANTILE_FUNCTION)}(landing.{sample.name}) AS {sample.name}_digest",
        ]
    # An event that speaks for the whole has no row of its own among the parts.
    parts = [f"`{definition.first_omitted_dimension(rollup).name}`" for rollup in definition.rollups]
    filled = " AND ".join(f"landing.{name} != ''" for name in parts if name in dimensions)
    return (
        f"SELECT\n    {_lines(columns)}\nFROM {landing_table(definition)}{suffix} AS landing\n"
        + (f"WHERE {filled}\n" if filled else "")
        + f"GROUP BY {', '.join((*dimensions, 'bucket'))}"
    )


def table_gauges(definition: MetricDefinition, rollup: str | None) -> tuple[Measure, ...]:
    """The gauges in the tables of the metric itself, or in those of one of its rollups."""
    return definition.own_gauges if rollup is None else _rollup(definition, rollup).gauges


def _seen(definition: MetricDefinition, gauges: tuple[Measure, ...]) -> str:
    if not definition.rollups:
        return "max(landing.seen_ms) AS seen_ms"
    observed = " OR ".join(f"isNotNull(landing.{gauge.name}_last)" for gauge in gauges) or "false"
    return f"maxIf(landing.seen_ms, {observed}) AS seen_ms"


def _rollup(definition: MetricDefinition, name: str) -> Rollup:
    return next(rollup for rollup in definition.rollups if rollup.name == name)


def key_columns(definition: MetricDefinition, table: TierTable) -> list[str]:
    """What a row of the table belongs to; rows that agree in all of it are one."""
    return [*_names(_dimensions(definition, table)), "bucket"]


def _dimensions(definition: MetricDefinition, table: TierTable) -> list[Dimension]:
    if table.rollup is None:
        return list(definition.dimensions)
    kept = _rollup(definition, table.rollup).dimensions
    return [dimension for dimension in definition.dimensions if dimension.name in kept]


def _freshness_view(definition: MetricDefinition) -> str:
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {definition.name}_freshness_view\nTO {FRESHNESS} AS\n"
        f"SELECT\n    '{definition.name}' AS metric,\n    max(landing.newest_ms) AS newest_ms\n"
        f"FROM {landing_table(definition)} AS landing"
    )


def _table(
    name: str,
    columns: list[str],
    *,
    engine: str,
    order_by: str,
    partition_by: str | None = None,
    ttl: str | None = None,
    more_settings: Iterable[str] = (),
) -> str:
    settings = [f"non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}", *more_settings]
    if ttl is not None:
        settings.insert(0, "ttl_only_drop_parts = 1")
    clauses: Iterator[str | None] = iter(
        (
            f"CREATE TABLE IF NOT EXISTS {name}",
            _block(columns),
            f"ENGINE = {engine}",
            partition_by and f"PARTITION BY {partition_by}",
            f"ORDER BY ({order_by})",
            ttl and f"TTL {ttl}",
            f"SETTINGS {', '.join(settings)}",
        )
    )
    return "\n".join(clause for clause in clauses if clause)


def _dimension_type(dimension: Dimension) -> str:
    return "String" if dimension.high_cardinality else "LowCardinality(String)"


def _names(dimensions: list[Dimension]) -> list[str]:
    return [f"`{dimension.name}`" for dimension in dimensions]


def _state(function: str) -> str:
    name, bracket, levels = function.partition("(")
    return f"{name}State{bracket}{levels}"


def _block(columns: list[str]) -> str:
    return f"(\n    {_lines(columns)}\n)"


def _lines(columns: list[str]) -> str:
    return ",\n    ".join(columns)
