"""Tests of rejected events: each is kept with its text, and those that a fix makes readable are replayed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import Dimension, Measure, MetricDefinition
from penstock.errors import WarehouseUnavailable
from penstock.pipeline.checkpoint import checkpoint_path
from penstock.pipeline.job import Pipeline
from penstock.pipeline.rejected_replay import RejectedReplay
from penstock.streams.drain_target import DrainTarget
from penstock.streams.packing import pack
from penstock.streams.positions import decode_text
from penstock.streams.wire import decode_fields
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.rejected_events import count_kept
from penstock.warehouse.schema import REJECTED_TABLE, SET_ASIDE_TABLE, metric_statements
from tests.integration.pipeline.events import entry_fields

STRICT = MetricDefinition(
    name="door",
    dimensions=(Dimension("house", "hs", "where it is"), Dimension("floor", "fl", "which floor")),
    counters=(Measure("opened", "op", "times it was opened"),),
    shards=1,
)
FIXED = replace(STRICT, dimensions=(STRICT.dimensions[0], replace(STRICT.dimensions[1], optional=True)))
"""The same metric after a fix: the floor is optional."""

STREAM = STRICT.stream_keys[0]


@pytest.fixture
def settings(archive_settings: Settings, warehouse: Warehouse) -> Settings:
    for statement in metric_statements(STRICT):
        warehouse.command(statement)
    return archive_settings


def drain(spark: SparkSession, settings: Settings, redis: Redis, definition: MetricDefinition) -> None:
    target = DrainTarget.capture(redis, definition.stream_keys)
    checkpoint = checkpoint_path(settings)
    assert Pipeline(spark, settings, checkpoint, (definition,), threading.Event()).drain(target, print)


def kept_events(warehouse: Warehouse) -> list[dict[str, Any]]:
    return warehouse.query(
        f"SELECT reason, entry, text, fields FROM {REJECTED_TABLE} FINAL WHERE replayed = 0 ORDER BY entry"
    )


def opened(warehouse: Warehouse) -> dict[str, int]:
    rows = warehouse.query("SELECT bucket, sum(opened) AS opened FROM door_5s GROUP BY bucket")
    return {row["bucket"].isoformat(): int(row["opened"]) for row in rows}


def rejected_count(warehouse: Warehouse) -> int:
    [row] = warehouse.query(
        f"SELECT sum(if(reason = 'replayed', -1, 1) * toInt64(events)) AS events FROM {SET_ASIDE_TABLE}"
    )
    return int(row["events"])


def add_rejected_events(redis: Redis) -> list[str]:
    """Add three events without a floor, single and packed, and two that no fix makes readable."""
    now_ms = int(redis.time()[0]) * 1000
    packed = pack(STRICT, [({"hs": "mill", "op": 4}, now_ms), ({"hs": "mill", "op": 8}, now_ms)])
    entries: list[dict[str, str | bytes]] = [
        {"hs": "mill", "op": "2"},
        {"p": packed or b""},
        {"hs": b"\xff\xfe", "fl": "1", "op": "1"},
        {"hs": "mill", "fl": "1", "op": "many"},
    ]
    return [decode_text(redis.xadd(STREAM, entry_fields(fields))) for fields in entries]


def test_every_rejected_event_is_kept_and_archived_with_its_text(
    spark: SparkSession, settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    single, packed, not_text, not_a_number = add_rejected_events(redis)
    drain(spark, settings, redis, STRICT)
    kept = kept_events(warehouse)
    assert [(row["entry"], row["reason"]) for row in kept] == [
        (single, "missing_dimension"),
        (f"{packed}#0", "missing_dimension"),
        (f"{packed}#1", "missing_dimension"),
        (not_text, "not_text"),
        (not_a_number, "not_a_number"),
    ]
    assert kept[4]["text"] == "hs=mill fl=1 op=many"
    assert decode_fields(kept[3]["fields"])[0] == (b"hs", b"\xff\xfe"), "every byte is kept"
    archive = Path(settings.archive) / "rejected" / STRICT.name
    archived = pa.concat_tables([pq.read_table(path) for path in archive.rglob("*.parquet")]).to_pylist()
    assert sorted(archived, key=lambda row: str(row["entry"])) == kept


def test_a_replay_adds_the_events_that_a_fix_makes_readable_once(
    spark: SparkSession, settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    add_rejected_events(redis)
    drain(spark, settings, redis, STRICT)
    assert (opened(warehouse), rejected_count(warehouse)) == ({}, 5)
    length = redis.xlen(STREAM)

    planned = RejectedReplay(FIXED, redis, warehouse).run(dry_run=True)
    assert (planned.replayed, planned.still_rejected, redis.xlen(STREAM)) == (3, 2, length)
    result = RejectedReplay(FIXED, redis, warehouse).run()
    assert (result.replayed, result.still_rejected) == (3, 2)
    again = RejectedReplay(FIXED, redis, warehouse).run()
    assert (again.replayed, again.still_rejected) == (0, 2)

    drain(spark, settings, redis, FIXED)
    assert sum(opened(warehouse).values()) == 2 + 4 + 8
    assert (rejected_count(warehouse), count_kept(warehouse, STRICT.name)) == (2, 2)


def test_a_replay_that_was_killed_is_completed_without_a_second_replay(
    spark: SparkSession,
    settings: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_rejected_events(redis)
    drain(spark, settings, redis, STRICT)

    def fail(*arguments: object) -> None:
        raise WarehouseUnavailable("ClickHouse was killed")

    insert = Warehouse.insert_once
    monkeypatch.setattr(Warehouse, "insert_once", fail)
    with pytest.raises(WarehouseUnavailable):
        RejectedReplay(FIXED, redis, warehouse).run()
    added = redis.xlen(STREAM)
    monkeypatch.setattr(Warehouse, "insert_once", insert)
    result = RejectedReplay(FIXED, redis, warehouse).run()
    assert (result.replayed, result.still_rejected) == (0, 2)
    assert redis.xlen(STREAM) == added
    assert (rejected_count(warehouse), count_kept(warehouse, STRICT.name)) == (2, 2)
