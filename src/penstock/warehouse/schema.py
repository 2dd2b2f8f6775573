"""Build the DDL of a metric's ClickHouse tables from its definition.

Each metric has a landing table that stores nothing, and one table per tier that a materialized view fills
from the landing table. One insert therefore reaches every tier under one deduplication token, and no tier
depends on another. No column holds an average: sums, maxima, last values and digests merge without error.
Only the `<sample>_percentiles` columns are not filled by a view; see `closed_percentiles`.

The landing row is the contract with the pipeline: the dimensions, `at` (the bucket's start), `events`,
`newest_ms` (the newest event's time), `seen_ms` and `seen_id` (time and stream id of the last
observation of a gauge), the counters, `<gauge>_max` and `<gauge>_last` (null: not observed), and
each sample as an array.

The tables of a rollup (`queue_environment_5s` next to `queue_5s`) are filled from the same landing table in
the same way, so they also count every event once. They hold the rollup's gauges; the metric's own tables hold
the other gauges.
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
"""Deduplication tokens kept per table. The pipeline repeats only its last batch, after a crash."""

MIN_WIDE_PART_BYTES = 1 << 40
"""No part of a day reaches this size, so every part is compact: one file for all columns."""

MERGE_DAY_AFTER_S = 3600
"""ClickHouse merges the parts of a day that has received no rows for this long."""

SET_ASIDE_TABLE = "set_aside"
"""Events that the pipeline could not count, with the reason and the interval from `began_at` to `at`."""

REJECTED_TABLE = "rejected_events"
"""The rejected events themselves. `at` is the time under which `set_aside` counts the event. A second row
with `replayed` = 1 replaces the first when the event is added to its stream again."""

FRESHNESS_TABLE = "freshness"
"""The time of the newest event of each metric."""

MIGRATIONS_TABLE = "schema_migrations"
"""The migrations that were applied; see `schema_migrations`."""

TIME_CODEC = "CODEC(Delta, ZSTD(1))"


@dataclass(frozen=True, slots=True)
class TierTable:
    """A table that a view fills from the landing table. `rollup` is None for the metric's own tables."""

    name: str
    tier: Tier
    rollup: str | None


def landing_table(definition: MetricDefinition) -> str:
    return f"{definition.name}_landing"


def tier_table(definition: MetricDefinition, tier: Tier, rollup: str | None = None) -> str:
    return "_".join((definition.name, *((rollup,) if rollup else ()), tier.name))


def tier_tables(definition: MetricDefinition) -> tuple[TierTable, ...]:
    """Return all tier tables, fine to coarse, the metric's own before those of its rollups."""
    rollups: list[str | None] = [None, *(rollup.name for rollup in definition.rollups)]
    return tuple(
        TierTable(tier_table(definition, tier, rollup), tier, rollup) for rollup in rollups for tier in TIERS
    )


def shared_table_statements() -> list[str]:
    """Return the statements that create the tables shared by all metrics."""
    return [
        _table(
            SET_ASIDE_TABLE,
            [
                "metric LowCardinality(String)",
                "reason LowCardinality(String)",
                "stream LowCardinality(String)",
                f"at DateTime('UTC') {TIME_CODEC}",
                f"began_at DateTime('UTC') DEFAULT at {TIME_CODEC}",
                "events UInt64",
                "example String",
            ],
            engine="MergeTree",
            order_by="metric, reason, at",
            partition_by="toDate(at)",
            ttl="at + INTERVAL 31 DAY",
        ),
        _table(
            REJECTED_TABLE,
            [
                "metric LowCardinality(String)",
                "reason LowCardinality(String)",
                "stream LowCardinality(String)",
                f"at DateTime('UTC') {TIME_CODEC}",
                "entry String",
                "text String",
                "fields String CODEC(ZSTD(1))",
                "replayed UInt8",
            ],
            engine="ReplacingMergeTree(replayed)",
            order_by="metric, at, stream, entry",
            partition_by="toDate(at)",
            ttl="at + INTERVAL 31 DAY",
        ),
        _table(
            FRESHNESS_TABLE,
            ["metric LowCardinality(String)", "newest_ms SimpleAggregateFunction(max, UInt64)"],
            engine="AggregatingMergeTree",
            order_by="metric",
        ),
    ]


def metric_statements(definition: MetricDefinition) -> list[str]:
    """Return the statements that create a metric's tables and views, in order. Each is safe to repeat."""
    tables = tier_tables(definition)
    return [
        _landing(definition),
        *(_tier(definition, table) for table in tables),
        *(_view(definition, table) for table in tables),
        _freshness_view(definition),
    ]


def copy_statements(definition: MetricDefinition, suffix: str) -> list[str]:
    """Return the statements that create a second set of the metric's tables, with names ending in `suffix`.

    A rebuild fills these copies while the live tables stay in use. The copies have no TTL, and filling them
    does not change the metric's freshness.
    """
    tables = tier_tables(definition)
    return [
        _landing(definition, suffix),
        *(_tier(definition, table, suffix, expires=False) for table in tables),
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


def _tier(definition: MetricDefinition, table: TierTable, suffix: str = "", *, expires: bool = True) -> str:
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
        if table.tier.stores_percentiles:
            columns.append(f"{sample.name}_percentiles {packed_maximum.TYPE}")
    return _table(
        table.name + suffix,
        columns,
        engine="AggregatingMergeTree",
        order_by=", ".join(key_columns(definition, table)),
        partition_by="toDate(bucket)",
        ttl=f"bucket + INTERVAL {table.tier.days} DAY" if expires else None,
        more_settings=(f"index_granularity = {table.tier.granule_rows}", *_merge_settings(table.tier)),
    )


def _merge_settings(tier: Tier) -> list[str]:
    """Settings that keep a series of many days fast: few parts and few files to open."""
    if not tier.merges_days:
        return []
    return [
        f"min_age_to_force_merge_seconds = {MERGE_DAY_AFTER_S}",
        "min_age_to_force_merge_on_partition_only = 1",
        f"min_bytes_for_wide_part = {MIN_WIDE_PART_BYTES}",
    ]


def _view(definition: MetricDefinition, table: TierTable, suffix: str = "") -> str:
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {table.name}{suffix}_view\n"
        f"TO {table.name}{suffix} AS\n{view_query(definition, table, suffix)}"
    )


def view_query(definition: MetricDefinition, table: TierTable, suffix: str = "") -> str:
    """Return the SELECT with which the table's view reads the landing table.

    A migration changes a view with `ALTER TABLE … MODIFY QUERY`, so the view exists whenever rows land.
    """
    gauges = table_gauges(definition, table.rollup)
    dimensions = _names(_dimensions(definition, table))
    # Columns are qualified, because an alias with a column's name would shadow the column.
    columns = [
        *dimensions,
        f"toStartOfInterval(landing.at, INTERVAL {table.tier.width_s} SECOND, 'UTC') AS bucket",
        "sum(landing.events) AS events",
        _last_observation_time(definition, gauges),
        *(f"sum(landing.{counter.name}) AS {counter.name}" for counter in definition.counters),
    ]
    for gauge in gauges:
        last = f"landing.{gauge.name}_last"
        observation = packed_maximum.pack_observation(
            f"assumeNotNull({last})", "toUnixTimestamp(landing.at)", "assumeNotNull(landing.seen_id)"
        )
        columns += [
            f"max(landing.{gauge.name}_max) AS {gauge.name}_max",
            f"max(if(isNull({last}), {packed_maximum.EMPTY}, {observation})) AS {gauge.name}_last",
        ]
    for sample in definition.samples:
        columns += [
            f"sum(length(landing.{sample.name})) AS {sample.name}_count",
            f"sum(arraySum(landing.{sample.name})) AS {sample.name}_sum",
            f"max(arrayMax(landing.{sample.name})) AS {sample.name}_max",
            f"{_state(QUANTILE_FUNCTION)}(landing.{sample.name}) AS {sample.name}_digest",
        ]
    # An event that describes only a rollup has no row in the metric's own tables.
    omitted = [f"`{definition.first_omitted_dimension(rollup).name}`" for rollup in definition.rollups]
    condition = " AND ".join(f"landing.{name} != ''" for name in omitted if name in dimensions)
    return (
        f"SELECT\n    {_lines(columns)}\nFROM {landing_table(definition)}{suffix} AS landing\n"
        + (f"WHERE {condition}\n" if condition else "")
        + f"GROUP BY {', '.join((*dimensions, 'bucket'))}"
    )


def table_gauges(definition: MetricDefinition, rollup: str | None) -> tuple[Measure, ...]:
    """Return the gauges in the metric's own tables, or in those of one of its rollups."""
    return definition.own_gauges if rollup is None else _rollup(definition, rollup).gauges


def _last_observation_time(definition: MetricDefinition, gauges: tuple[Measure, ...]) -> str:
    if not definition.rollups:
        return "max(landing.seen_ms) AS seen_ms"
    observed = " OR ".join(f"isNotNull(landing.{gauge.name}_last)" for gauge in gauges) or "false"
    return f"maxIf(landing.seen_ms, {observed}) AS seen_ms"


def _rollup(definition: MetricDefinition, name: str) -> Rollup:
    return next(rollup for rollup in definition.rollups if rollup.name == name)


def key_columns(definition: MetricDefinition, table: TierTable) -> list[str]:
    """Return the sorting key of a table. ClickHouse merges rows with equal keys."""
    return [*_names(_dimensions(definition, table)), "bucket"]


def _dimensions(definition: MetricDefinition, table: TierTable) -> list[Dimension]:
    if table.rollup is None:
        return list(definition.dimensions)
    kept = _rollup(definition, table.rollup).dimensions
    return [dimension for dimension in definition.dimensions if dimension.name in kept]


def _freshness_view(definition: MetricDefinition) -> str:
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {definition.name}_freshness_view\nTO {FRESHNESS_TABLE} AS\n"
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
