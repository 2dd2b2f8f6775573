"""Pipelines with an archive on the tests' session, what it holds, and what the tables hold."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import DEFINITIONS, QUEUE
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.archive.rebuild import DayPlan, Rebuild
from penstock.pipeline.checkpoint import checkpoint_path
from penstock.pipeline.job import Pipeline
from penstock.streams.drain_target import Goal
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import QUANTILE_FUNCTION, key_columns, table_gauges, tier_tables
from penstock.warehouse.series.packed_maximum import unpack_observed_value, unpack_percentiles_count
from tests.integration.pipeline.events import event

Content = dict[str, list[dict[str, Any]]]


def drained(spark: SparkSession, settings: Settings, redis: Redis) -> None:
    """Count what is in the streams, as `penstock pipeline drain` does."""
    goal = Goal.of(redis, QUEUE.stream_keys)
    pipeline = Pipeline(spark, settings, checkpoint_path(settings), DEFINITIONS, threading.Event())
    assert pipeline.drain(goal, lambda left: None)


def archived(settings: Settings) -> list[dict[str, Any]]:
    """Every row of the archive, read as any program would, in the order of the streams."""
    rows = ds.dataset(f"{settings.archive}/queue", format="parquet", partitioning="hive").to_table()
    return sorted(rows.to_pylist(), key=lambda row: (row["id_ms"], row["id_sequence"]))


def today() -> date:
    return datetime.now(UTC).date()


def emit(redis: Redis, count: int, **fields: str | int) -> None:
    """Events of queues, of a group of theirs, and of the environment as a whole, each in one stream."""
    with redis.pipeline(transaction=False) as pipe:
        for n in range(count):
            queue = event(f"q{n % 5}", eq=n, ql=n % 13, dy=n % 3, wt=f"{n % 7},{n % 90}", **fields)
            group = event(f"q{n % 5}", group="g", dq=1, cc=n % 3, rt=n % 50, **fields)
            whole = event("", eql=n % 40, edy=n % 4, ecc=2, **fields)
            for shard, made in ((n % 5 % 2, queue), (n % 5 % 2, group), (0, whole)):
                pipe.xadd(QUEUE.stream_keys[shard], made)
        pipe.execute()


def content(warehouse: Warehouse, quantiles: bool = True) -> Content:
    """Every row of every tier, merged. (Quantiles of large digests depend on the order of their making.)"""
    found = {}
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
                # As text, because without samples they are not numbers, which never equal themselves.
                merged.append(f"toString({function}Merge({levels}({sample.name}_digest)) AS d_{sample.name}")
        found[table.name] = warehouse.query(
            f"SELECT {names}, bucket, {', '.join(merged)} FROM {table.name} "
            f"GROUP BY {names}, bucket ORDER BY ALL"
        )
    return found


def unwritten(warehouse: Warehouse) -> int:
    """How many minutes and hours with waits have no percentiles that speak for all of them."""
    found = 0
    for table in tier_tables(QUEUE):
        if table.tier.stores_percentiles:
            key = ", ".join(key_columns(QUEUE, table))
            written = unpack_percentiles_count("max(wait_ms_percentiles)")
            [row] = warehouse.query(
                f"SELECT count() AS n FROM (SELECT 1 FROM {table.name} GROUP BY {key} "
                f"HAVING sum(wait_ms_count) != {written})"
            )
            found += int(row["n"])
    return found


def rebuilt(spark: SparkSession, settings: Settings, redis: Redis, warehouse: Warehouse) -> list[DayPlan]:
    """All days of the archive, on the tests' session."""
    rebuilding = Rebuild(Archive(settings.archive, QUEUE), warehouse, redis)
    plans = rebuilding.plan(date.min, date.max)
    rebuilding.run(plans, spark, lambda day, events: None)
    return plans
