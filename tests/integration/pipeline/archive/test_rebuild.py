"""Days computed anew from the archive equal the live ones, whatever goes on meanwhile."""

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
from penstock.definitions import DEFINITIONS, QUEUE
from penstock.errors import ConfigError
from penstock.pipeline.archive import commands, compact, rebuild
from penstock.pipeline.archive.compact import Compaction
from penstock.pipeline.archive.event_archive import Archive, ArchiveInUse
from penstock.pipeline.archive.rebuild import RebuildRefused
from penstock.pipeline.checkpoint import checkpoint_path
from penstock.pipeline.job import Pipeline
from penstock.streams.batch_lock import Mark, hold_key, mark_key
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import tier_tables
from penstock.warehouse.table_copies import swap_statement, tables_retaining
from tests.integration.pipeline.archive.archive_content import (
    archived,
    content,
    drained,
    emit,
    rebuilt,
    today,
    unwritten,
)
from tests.waiting import wait_until

PATIENCE_S = 120


def test_a_rebuilt_day_equals_the_live_one(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    yesterday = int(time.time() * 1000) - 86_400_000
    emit(redis, 30)
    drained(spark, archiving, redis)
    emit(redis, 10)
    emit(redis, 3, t=yesterday)
    drained(spark, archiving, redis)
    live = content(warehouse)
    assert {sum(row["n"] for row in rows) for rows in live.values()} == {86, 129}
    assert unwritten(warehouse) > 0  # today's last minute, at least, has not passed

    plans = rebuilt(spark, archiving, redis, warehouse)
    assert [(plan.archived, plan.counted, plan.rebuilt) for plan in plans] == [
        (9, 9, True),
        (120, 120, True),
    ]
    assert content(warehouse) == live
    assert unwritten(warehouse) == 0
    for table in tier_tables(QUEUE):
        warehouse.command(f"ALTER TABLE {table.name} DROP PARTITION '{today()}'")
    assert content(warehouse) != live
    assert [plan.counted for plan in rebuilt(spark, archiving, redis, warehouse)] == [9, 0]
    assert content(warehouse) == live

    # Nothing is left behind, and the new parts are forgotten in time like the old ones.
    left = warehouse.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert not [row["name"] for row in left if "rebuild" in row["name"]]
    [row] = warehouse.query(
        "SELECT countIf(delete_ttl_info_max < now()) AS n FROM system.parts "
        "WHERE database = currentDatabase() AND active AND table LIKE 'queue_%'"
    )
    assert row["n"] == 0
    # And what comes afterwards is counted.
    emit(redis, 10)
    drained(spark, archiving, redis)
    assert sum(row["n"] for row in content(warehouse)["queue_environment_1h"]) == 159


def test_files_from_before_a_gauge_was_declared_are_rebuilt_without_it(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 10)
    drained(spark, archiving, redis)
    live = content(warehouse)
    assert any(row["l_delayed"] for row in live["queue_1h"])
    for path in Path(archiving.archive).rglob("*.parquet"):
        with pq.ParquetFile(path) as file:
            held = file.read()
        pq.write_table(held.drop_columns(["delayed", "env_delayed"]), path)
    [plan] = rebuilt(spark, archiving, redis, warehouse)
    assert (plan.archived, plan.rebuilt) == (30, True)
    for name, rows in content(warehouse).items():
        prefix = "env_" if "environment" in name else ""
        unknown = {f"m_{prefix}delayed": None, f"l_{prefix}delayed": None}
        assert rows == [row | unknown for row in live[name]]


@contextmanager
def running(spark: SparkSession, settings: Settings) -> Iterator[None]:
    stopping = threading.Event()
    pipeline = Pipeline(spark, settings, checkpoint_path(settings), DEFINITIONS, stopping)
    thread = threading.Thread(target=pipeline.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(PATIENCE_S)


def test_events_that_come_during_a_rebuild_are_neither_lost_nor_counted_twice(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 200)
    enough = threading.Event()
    sent = 200

    def go_on() -> None:
        nonlocal sent
        while not enough.wait(0.05):
            emit(redis, 10)
            sent += 10

    with running(spark, archiving):
        wait_until(lambda: archived(archiving), PATIENCE_S, "the archive has something")
        busy = threading.Thread(target=go_on)
        busy.start()
        try:
            plans = [plan for _ in range(2) for plan in rebuilt(spark, archiving, redis, warehouse)]
        finally:
            enough.set()
            busy.join()
        assert all(plan.rebuilt for plan in plans)
        assert plans[-1].archived > plans[0].archived > 600  # there was something to be careful about

        def all_counted() -> bool:
            rows = content(warehouse)["queue_environment_1h"]
            return sum(row["n"] for row in rows) >= 3 * sent

        wait_until(all_counted, PATIENCE_S, "everything is counted")
    found = content(warehouse, quantiles=False)
    assert {name: sum(row["n"] for row in rows) for name, rows in found.items()} == {
        table.name: sent * (3 if table.rollup else 2) for table in tier_tables(QUEUE)
    }
    assert len(archived(archiving)) == 3 * sent
    rebuilt(spark, archiving, redis, warehouse)
    assert content(warehouse, quantiles=False) == found


def test_a_day_that_would_come_out_wrong_is_left_alone(
    spark: SparkSession,
    archiving: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebuild, "PATIENCE_S", 0.2)
    for _ in range(2):
        emit(redis, 10)
        drained(spark, archiving, redis)
    live = content(warehouse)
    archive = Archive(archiving.archive, QUEUE)
    first, last = archive.batches(today())
    query_id, _, number = last.rpartition("-")
    # Its last batch was killed: nobody knows whether it is counted.
    redis.set(mark_key("queue"), Mark(query_id, int(number), False).text)
    with pytest.raises(RebuildRefused, match="penstock pipeline drain"):
        rebuilt(spark, archiving, redis, warehouse)
    assert content(warehouse) == live
    assert not redis.exists(hold_key("queue"))
    # One that has nothing to do with the day is no reason.
    redis.set(mark_key("queue"), Mark("another", 3, False).text)
    assert [plan.rebuilt for plan in rebuilt(spark, archiving, redis, warehouse)] == [True]
    assert content(warehouse) == live
    # The archive has the day in part.
    shutil.rmtree(f"{archive.day_place(today())}/batch={first}")
    with pytest.raises(RebuildRefused, match="the archive has 30 events and the tables have 60"):
        rebuilt(spark, archiving, redis, warehouse)
    assert content(warehouse) == live


def test_compact_files_hold_the_same_events(
    spark: SparkSession,
    archiving: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        emit(redis, 15)
        drained(spark, archiving, redis)
    archive = Archive(archiving.archive, QUEUE)
    before = archived(archiving)
    write = Compaction._write

    def write_and_be_late(self: Compaction, *arguments: Any) -> Any:
        made = write(self, *arguments)
        emit(redis, 5)
        drained(spark, archiving, redis)
        return made

    tomorrow = today() + timedelta(days=1)
    assert commands.compact(archiving, None, None, lambda day: None) == []  # today is not over
    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "_write", write_and_be_late)
        patch.setattr(compact, "FEW_FILES", 1)
        [done] = commands.compact(archiving, tomorrow, "queue", lambda day: None)
    assert (done.events, done.files_before, done.files_after) == (90, 4, 2)
    assert len(archive.batches(today())) == 2

    def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [{name: value for name, value in row.items() if name != "batch"} for row in rows]
        return sorted(kept, key=lambda row: (row["id_ms"], row["id_sequence"], row["queue"], row["group"]))

    after = archived(archiving)
    assert len(after) == 105
    assert bare(after[:90]) == bare(before)
    live = content(warehouse)
    rebuilt(spark, archiving, redis, warehouse)
    assert content(warehouse) == live
    assert [path.name for path in Path(archive.place).glob(".*day*")] == []


def test_one_at_a_time_works_on_an_archive(archiving: Settings) -> None:
    archive = Archive(archiving.archive, QUEUE)
    with archive.alone(archiving.home), pytest.raises(ArchiveInUse, match="wait until it has ended"):
        commands.compact(archiving, None, None, lambda day: None)


def test_what_cannot_be_meant_is_refused(archiving: Settings) -> None:
    def ask(settings: Settings, first: date, last: date, metric: str | None = None) -> None:
        commands.rebuild(
            settings, first, last, metric=metric, begin=lambda plans: None, tell=lambda day, events: None
        )

    with pytest.raises(ConfigError, match="before it begins"):
        ask(archiving, today(), today() - timedelta(days=1))
    with pytest.raises(ConfigError, match="no metric 'quue': there is queue"):
        ask(archiving, today(), today(), "quue")
    with pytest.raises(ConfigError, match="PENSTOCK_ARCHIVE"):
        ask(archiving.model_copy(update={"archive": ""}), today(), today())


def test_tiers_that_forgot_the_day_are_passed_over() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def tiers(days_ago: int) -> set[str]:
        kept = tables_retaining(QUEUE, now.date() - timedelta(days=days_ago), now)
        return {table.tier.name for table in kept}

    assert tiers(0) == tiers(2) == {"5s", "1m", "1h"}
    assert tiers(3) == tiers(31) == {"1m", "1h"}
    assert tiers(32) == tiers(400) == {"1h"}
    assert tiers(401) == set()


def test_on_a_cluster_the_swap_is_said_to_all() -> None:
    table = tier_tables(QUEUE)[0]
    assert swap_statement(table, date(2026, 11, 15), "all") == (
        "ALTER TABLE queue_5s ON CLUSTER `all` REPLACE PARTITION '2026-11-15' FROM queue_5s_rebuild"
    )
