"""Tests that rebuilt days equal the live ones, also while events arrive."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.errors import ConfigError
from penstock.pipeline.archive import commands
from penstock.pipeline.archive.compact import Compaction
from penstock.pipeline.archive.event_archive import Archive, ArchiveInUse
from penstock.pipeline.archive.rebuild import RebuildRefused
from penstock.pipeline.checkpoint import checkpoint_path
from penstock.pipeline.job import Pipeline
from penstock.streams.batch_lock import BatchMark, batch_lock_key, batch_mark_key
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_tables
from penstock.warehouse.table_copies import swap_statement, tables_retaining
from tests.deadlines import deadline_s
from tests.integration.pipeline.archive.archive_content import (
    archived_rows,
    buckets_without_percentiles,
    drain,
    emit,
    rebuild_all,
    table_content,
    today,
)
from tests.waiting import wait_until

TIMEOUT_S = 120


def test_a_rebuilt_day_equals_the_live_one(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    yesterday = int(time.time() * 1000) - 86_400_000
    emit(redis, 30)
    drain(spark, archive_settings, redis)
    emit(redis, 10)
    emit(redis, 3, t=yesterday)
    drain(spark, archive_settings, redis)
    live = table_content(warehouse)
    assert {sum(row["n"] for row in rows) for rows in live.values()} == {86, 129}
    assert buckets_without_percentiles(warehouse) > 0  # at least the current minute is not closed

    plans = rebuild_all(spark, archive_settings, redis, warehouse)
    assert [(plan.archived, plan.counted, plan.rebuilt) for plan in plans] == [
        (9, 9, True),
        (120, 120, True),
    ]
    assert table_content(warehouse) == live
    assert buckets_without_percentiles(warehouse) == 0
    for table in tier_tables(QUEUE):
        warehouse.command(f"ALTER TABLE {table.name} DROP PARTITION '{today()}'")
    assert table_content(warehouse) != live
    assert [plan.counted for plan in rebuild_all(spark, archive_settings, redis, warehouse)] == [9, 0]
    assert table_content(warehouse) == live

    # No copies remain, and the swapped parts have a TTL like the old ones.
    tables = warehouse.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert not [row["name"] for row in tables if "rebuild" in row["name"]]
    [row] = warehouse.query(
        "SELECT countIf(delete_ttl_info_max < now()) AS n FROM system.parts "
        "WHERE database = currentDatabase() AND active AND table LIKE 'queue_%'"
    )
    assert row["n"] == 0
    # Later events are counted.
    emit(redis, 10)
    drain(spark, archive_settings, redis)
    assert sum(row["n"] for row in table_content(warehouse)["queue_environment_1h"]) == 159


def test_files_from_before_a_gauge_was_declared_are_rebuilt_without_it(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 10)
    drain(spark, archive_settings, redis)
    live = table_content(warehouse)
    assert any(row["l_delayed"] for row in live["queue_1h"])
    for path in Path(archive_settings.archive).rglob("*.parquet"):
        with pq.ParquetFile(path) as file:
            rows = file.read()
        pq.write_table(rows.drop_columns(["delayed", "env_delayed"]), path)
    [plan] = rebuild_all(spark, archive_settings, redis, warehouse)
    assert (plan.archived, plan.rebuilt) == (30, True)
    for name, rows in table_content(warehouse).items():
        prefix = "env_" if "environment" in name else ""
        unknown = {f"m_{prefix}delayed": None, f"l_{prefix}delayed": None}
        assert rows == [row | unknown for row in live[name]]


@contextmanager
def running(spark: SparkSession, settings: Settings) -> Iterator[None]:
    stopping = threading.Event()
    pipeline = Pipeline(spark, settings, checkpoint_path(settings), (QUEUE,), stopping)
    thread = threading.Thread(target=pipeline.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(deadline_s(TIMEOUT_S))


def test_events_that_arrive_during_a_rebuild_are_counted_once(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 200)
    stop_emitting = threading.Event()
    sent = 200

    def emit_continuously() -> None:
        nonlocal sent
        while not stop_emitting.wait(0.05):
            emit(redis, 10)
            sent += 10

    with running(spark, archive_settings):
        wait_until(lambda: archived_rows(archive_settings), TIMEOUT_S, "the archive has events")
        emitting = threading.Thread(target=emit_continuously)
        emitting.start()
        try:
            plans = [
                plan for _ in range(2) for plan in rebuild_all(spark, archive_settings, redis, warehouse)
            ]
        finally:
            stop_emitting.set()
            emitting.join()
        assert all(plan.rebuilt for plan in plans)
        assert plans[-1].archived > plans[0].archived > 600  # events arrived during the rebuilds

        def all_counted() -> bool:
            rows = table_content(warehouse)["queue_environment_1h"]
            return bool(sum(row["n"] for row in rows) >= 3 * sent)

        wait_until(all_counted, TIMEOUT_S, "all events are counted")
    live = table_content(warehouse, quantiles=False)
    assert {name: sum(row["n"] for row in rows) for name, rows in live.items()} == {
        table.name: sent * (3 if table.rollup else 2) for table in tier_tables(QUEUE)
    }
    assert len(archived_rows(archive_settings)) == 3 * sent
    rebuild_all(spark, archive_settings, redis, warehouse)
    assert table_content(warehouse, quantiles=False) == live


def test_a_day_that_would_become_wrong_is_not_rebuilt(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    for _ in range(2):
        emit(redis, 10)
        drain(spark, archive_settings, redis)
    live = table_content(warehouse)
    archive = Archive(archive_settings.archive, QUEUE)
    first, last = archive.batches(today())
    query_id, _, number = last.rpartition("-")
    # Its last batch is open: it is unknown whether its events are counted.
    redis.set(batch_mark_key(redis, "queue"), BatchMark(query_id, int(number), False).to_json())
    with pytest.raises(RebuildRefused, match="penstock pipeline drain"):
        rebuild_all(spark, archive_settings, redis, warehouse, open_batch_timeout_s=0.2)
    assert table_content(warehouse) == live
    assert not redis.exists(batch_lock_key(redis, "queue"))
    # An open batch without events of the day does not matter.
    redis.set(batch_mark_key(redis, "queue"), BatchMark("another", 3, False).to_json())
    plans = rebuild_all(spark, archive_settings, redis, warehouse, open_batch_timeout_s=0.2)
    assert [plan.rebuilt for plan in plans] == [True]
    assert table_content(warehouse) == live
    # The archive lacks a batch of the day.
    shutil.rmtree(f"{archive.day_directory(today())}/batch={first}")
    with pytest.raises(RebuildRefused, match="the archive has 30 events and the tables have 60"):
        rebuild_all(spark, archive_settings, redis, warehouse, open_batch_timeout_s=0.2)
    assert table_content(warehouse) == live


def test_compacted_files_hold_the_same_events(
    spark: SparkSession,
    archive_settings: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        emit(redis, 15)
        drain(spark, archive_settings, redis)
    archive = Archive(archive_settings.archive, QUEUE)
    before = archived_rows(archive_settings)
    write = Compaction._write

    def write_while_a_batch_arrives(self: Compaction, *arguments: Any) -> Any:
        new_files = write(self, *arguments)
        emit(redis, 5)
        drain(spark, archive_settings, redis)
        return new_files

    tomorrow = today() + timedelta(days=1)
    assert commands.compact(archive_settings, None, None, lambda day: None) == []  # today is not over
    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "_write", write_while_a_batch_arrives)
        [done] = commands.compact(
            archive_settings, tomorrow, "queue", lambda day: None, max_files_per_stream=1
        )
    assert (done.events, done.files_before, done.files_after) == (90, 4, 2)
    assert len(archive.batches(today())) == 2

    def without_batch(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        stripped = [{name: value for name, value in row.items() if name != "batch"} for row in rows]
        return sorted(
            stripped, key=lambda row: (row["id_ms"], row["id_sequence"], row["queue"], row["group"])
        )

    after = archived_rows(archive_settings)
    assert len(after) == 105
    assert without_batch(after[:90]) == without_batch(before)
    live = table_content(warehouse)
    rebuild_all(spark, archive_settings, redis, warehouse)
    assert table_content(warehouse) == live
    assert [path.name for path in Path(archive.directory).glob(".*day*")] == []


def test_only_one_rebuild_or_compaction_at_a_time_uses_an_archive(archive_settings: Settings) -> None:
    archive = Archive(archive_settings.archive, QUEUE)
    with (
        archive.exclusive_lock(archive_settings.home),
        pytest.raises(ArchiveInUse, match="Wait until it has ended"),
    ):
        commands.compact(archive_settings, None, None, lambda day: None)


def test_invalid_arguments_are_refused(archive_settings: Settings) -> None:
    def rebuild(settings: Settings, first: date, last: date, metric: str | None = None) -> None:
        commands.rebuild(
            settings,
            first,
            last,
            metric=metric,
            on_plan=lambda plans: None,
            on_progress=lambda day, events: None,
        )

    with pytest.raises(ConfigError, match="before it begins"):
        rebuild(archive_settings, today(), today() - timedelta(days=1))
    with pytest.raises(ConfigError, match=r"'quue' does not exist. Known metrics: queue"):
        rebuild(archive_settings, today(), today(), "quue")
    with pytest.raises(ConfigError, match="PENSTOCK_ARCHIVE"):
        rebuild(archive_settings.model_copy(update={"archive": ""}), today(), today())


def test_tiers_that_no_longer_retain_the_day_are_skipped() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def tiers(days_ago: int) -> set[str]:
        kept = tables_retaining(QUEUE, now.date() - timedelta(days=days_ago), now)
        return {table.tier.name for table in kept}

    assert tiers(0) == tiers(2) == {"5s", "1m", "1h"}
    assert tiers(3) == tiers(31) == {"1m", "1h"}
    assert tiers(32) == tiers(400) == {"1h"}
    assert tiers(401) == set()


def test_on_a_cluster_the_swap_runs_on_all_nodes() -> None:
    table = tier_tables(QUEUE)[0]
    assert swap_statement(table, date(2026, 11, 15), "all") == (
        "ALTER TABLE queue_5s ON CLUSTER `all` REPLACE PARTITION '2026-11-15' FROM queue_5s_rebuild"
    )
