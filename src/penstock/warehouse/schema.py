"""The ClickHouse tables of a metric, made from its definition.

Per metric there is a landing table that stores nothing, and one table per tier that a materialized view fills
from the landing table. So one insert reaches every tier, under one deduplication token, and a tier never
depends on another. Nothing is averaged on the way: sums, maxima, last values and digests merge without error.

The landing row is the contract with the pipeline: the dimensions, `at` (the bucket's start), `events`,
`newest_ms` (the newest event's time), `seen_ms` and `seen_id` (time and stream id of the last
observation of a gauge), the counters, `<gauge>_max` and `<gauge>_last` (null: not observed), and
each sample as an array.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.definitions import Dimension, MetricDefinition
from penstock.warehouse.tiers import TIERS, Tier

QUANTILES = (0.5, 0.95, 0.99)
QUANTILE_FUNCTION = f"quantilesTDigestArray({', '.join(map(str, QUANTILES))})"

DEDUPLICATION_WINDOW = 1_000
"""Tokens each table remembers. A batch is only ever repeated right after a crash, so few would do."""

SET_ASIDE = "set_aside"
FRESHNESS = "freshness"
TIME_CODEC = "CODEC(Delta, ZSTD(1))"


def landing_table(definition: MetricDefinition) -> str:
    return f"{definition.name}_landing"


def tier_table(definition: MetricDefinition, tier: Tier) -> str:
    return f"{definition.name}_{tier.name}"


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
    return [
        _landing(definition),
        *(_tier(definition, tier) for tier in TIERS),
        *(_view(definition, tier) for tier in TIERS),
        _freshness_view(definition),
    ]


def _landing(definition: MetricDefinition) -> str:
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
    return f"CREATE TABLE IF NOT EXISTS {landing_table(definition)}\n{_block(columns)}\nENGINE = Null"


def _tier(definition: MetricDefinition, tier: Tier) -> str:
    columns = [
        *(f"`{dimension.name}` {_dimension_type(dimension)}" for dimension in definition.dimensions),
        f"bucket DateTime('UTC') {TIME_CODEC}",
        "events SimpleAggregateFunction(sum, UInt64)",
        "seen_ms SimpleAggregateFunction(max, Nullable(UInt64))",
        *(f"{counter.name} SimpleAggregateFunction(sum, UInt64)" for counter in definition.counters),
    ]
    for gauge in definition.gauges:
        columns += [
            f"{gauge.name}_max SimpleAggregateFunction(max, Nullable(UInt64))",
            f"{gauge.name}_last AggregateFunction(argMax, Nullable(UInt64), UInt128)",
        ]
    for sample in definition.samples:
        columns += [
            f"{sample.name}_count SimpleAggregateFunction(sum, UInt64)",
            f"{sample.name}_sum SimpleAggregateFunction(sum, UInt64)",
            f"{sample.name}_max SimpleAggregateFunction(max, UInt64)",
            f"{sample.name}_digest AggregateFunction({QUANTILE_FUNCTION}, Array(UInt64))",
        ]
    return _table(
        tier_table(definition, tier),
        columns,
        engine="AggregatingMergeTree",
        order_by=", ".join((*_dimension_names(definition), "bucket")),
        partition_by="toDate(bucket)",
        ttl=f"bucket + INTERVAL {tier.days} DAY",
    )


def _view(definition: MetricDefinition, tier: Tier) -> str:
    # Columns are qualified because an alias named like a column would shadow it.
    columns = [
        *_dimension_names(definition),
        f"toStartOfInterval(landing.at, INTERVAL {tier.width_s} SECOND, 'UTC') AS bucket",
        "sum(landing.events) AS events",
        "max(landing.seen_ms) AS seen_ms",
        *(f"sum(landing.{counter.name}) AS {counter.name}" for counter in definition.counters),
    ]
    # Newest bucket first, and within it the order in which the stream received the observations.
    order = "bitShiftLeft(toUInt128(toUnixTimestamp(landing.at)), 64) + assumeNotNull(landing.seen_id)"
    for gauge in definition.gauges:
        columns += [
            f"max(landing.{gauge.name}_max) AS {gauge.name}_max",
            f"argMaxState(landing.{gauge.name}_last, {order}) AS {gauge.name}_last",
        ]
    for sample in definition.samples:
        columns += [
            f"sum(length(landing.{sample.name})) AS {sample.name}_count",
            f"sum(arraySum(landing.{sample.name})) AS {sample.name}_sum",
            f"max(arrayMax(landing.{sample.name})) AS {sample.name}_max",
            f"{_state(QUANTILE_FUNCTION)}(landing.{sample.name}) AS {sample.name}_digest",
        ]
    grouping = ", ".join((*_dimension_names(definition), "bucket"))
    return (
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {tier_table(definition, tier)}_view\n"
        f"TO {tier_table(definition, tier)} AS\n"
        f"SELECT\n    {_lines(columns)}\nFROM {landing_table(definition)} AS landing\nGROUP BY {grouping}"
    )


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
) -> str:
    settings = [f"non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"]
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
    return "String" if dimension.many else "LowCardinality(String)"


def _dimension_names(definition: MetricDefinition) -> list[str]:
    return [f"`{dimension.name}`" for dimension in definition.dimensions]


def _state(function: str) -> str:
    name, bracket, levels = function.partition("(")
    return f"{name}State{bracket}{levels}"


def _block(columns: list[str]) -> str:
    return f"(\n    {_lines(columns)}\n)"


def _lines(columns: list[str]) -> str:
    return ",\n    ".join(columns)
