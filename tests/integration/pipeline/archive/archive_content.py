"""Helpers that run a pipeline with an archive and read the content of the archive and of the tables."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.archive.rebuild import OPEN_BATCH_TIMEOUT_S, DayPlan, Rebuild
from penstock.pipeline.checkpoint import checkpoint_path
from penstock.pipeline.job import MAX_FAILURES, Pipeline
from penstock.streams.drain_target import DrainTarget
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import QUANTILE_FUNCTION, key_columns, table_gauges, tier_tables
from penstock.warehouse.series.packed_maximum import unpack_observed_value, unpack_percentiles_count
from tests.integration.pipeline.events import entry_fields, event

TableContent = dict[str, list[dict[str, Any]]]


def drain(spark: SparkSession, settings: Settings, redis: Redis, max_failures: int = MAX_FAILURES) -> None:
    """Count all entries of the queue metric, as `penstock pipeline drain` does for every metric."""
    target = DrainTarget.capture(redis, QUEUE.stream_keys)
    pipeline = Pipeline(
        spark, settings, checkpoint_path(settings), (QUEUE,), threading.Event(), max_failures=max_failures
    )
    assert pipeline.drain(target, lambda left: None)


def archived_rows(settings: Settings) -> list[dict[str, Any]]:
    """Return every row of the archive, in the order of the streams."""
    rows = ds.dataset(f"{settings.archive}/queue", format="parquet", partitioning="hive").to_table()
    return sorted(rows.to_pylist(), key=lambda row: (row["id_ms"], row["id_sequence"]))


def today() -> date:
    return datetime.now(UTC).date()


def emit(redis: Redis, count: int, **fields: str | int) -> None:
    """Add events of queues, of a consumer group, and of the environment as a whole."""
    with redis.pipeline(transaction=False) as pipe:
        for n in range(count):
            queue = event(f"q{n % 5}", eq=n, ql=n % 13, dy=n % 3, wt=f"{n % 7},{n % 90}", **fields)
            group = event(f"q{n % 5}", group="g", dq=1, cc=n % 3, rt=n % 50, **fields)
            environment = event("", eql=n % 40, edy=n % 4, ecc=2, **fields)
            for shard, fields_of_event in ((n % 5 % 2, queue), (n % 5 % 2, group), (0, environment)):
                pipe.xadd(QUEUE.stream_keys[shard], entry_fields(fields_of_event))
        pipe.execute()


def table_content(warehouse: Warehouse, quantiles: bool = True) -> TableContent:
    """Return every merged row of every tier.

    Quantiles of large digests depend on the order of inserts; `quantiles=False` leaves them out.
    """
    rows_by_table = {}
    for table in tier_tables(QUEUE):
        dimensions = [d.name for d in QUEUE.dimensions]
        if table.rollup:
            dimensions = [name for name in dimensions if name not in ("queue", "group")]
        names = ", ".join(f"`{name}`" for name in dimensions)
        merged = [
            "sum(events) AS n",
            "max(seen_ms) AS seen",
            *(f"sum({counter.name}) AS c_{counter.name}" for counter in QUEUE.counters),
        ]
        for gauge in table_gauges(QUEUE, table.rollup):
            merged += [
                f"max({gauge.name}_max) AS m_{gauge.name}",
                f"{unpack_observed_value(f'max({gauge.name}_last)', 'NULL')} AS l_{gauge.name}",
            ]
        function, _, levels = QUANTILE_FUNCTION.partition("(")
        for sample in QUEUE.samples:
            merged += [
                f"sum({sample.name}_count) AS k_{sample.name}",
                f"sum({sample.name}_sum) AS s_{sample.name}",
                f"max({sample.name}_max) AS x_{sample.name}",
            ]
            if quantiles:
                # As text, because the quantiles of no samples are NaN, which does not equal itself.
                merged.append(f"toString({function}Merge({levels}({sample.name}_digest)) AS d_{sample.name}")
        rows_by_table[table.name] = warehouse.query(
            f"SELECT {names}, bucket, {', '.join(merged)} FROM {table.name} "
            f"GROUP BY {names}, bucket ORDER BY ALL"
        )
    return rows_by_table


def buckets_without_percentiles(warehouse: Warehouse) -> int:
    """Return how many minutes and hours have waits that their percentiles do not cover."""
    buckets = 0
    for table in tier_tables(QUEUE):
        if table.tier.stores_percentiles:
            key = ", ".join(key_columns(QUEUE, table))
            written = unpack_percentiles_count("max(wait_ms_percentiles)")
            [row] = warehouse.query(
                f"SELECT count() AS n FROM (SELECT 1 FROM {table.name} GROUP BY {key} "
                f"HAVING sum(wait_ms_count) != {written})"
            )
            buckets += int(row["n"])
    return buckets


def rebuild_all(
    spark: SparkSession,
    settings: Settings,
    redis: Redis,
    warehouse: Warehouse,
    open_batch_timeout_s: float = OPEN_BATCH_TIMEOUT_S,
) -> list[DayPlan]:
    """Rebuild all days of the archive, on the session of the tests."""
    rebuild = Rebuild(
        Archive(settings.archive, QUEUE), warehouse, redis, open_batch_timeout_s=open_batch_timeout_s
    )
    plans = rebuild.plan(date.min, date.max)
    rebuild.run(plans, spark, lambda day, events: None)
    return plans
