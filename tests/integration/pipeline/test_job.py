"""Tests of the whole pipeline on the shared session: from XADD to the tiers, with server restarts."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.broker.self_metrics.minute import WorkerIdentity
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.config import Settings
from penstock.definitions import DEFINITIONS, QUEUE, WORKER, Dimension, Measure, MetricDefinition
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed, ConfigError
from penstock.pipeline import job
from penstock.pipeline.job import run
from penstock.pipeline.session import build_session, register_source
from penstock.pipeline.source.redis_streams import FORMAT
from penstock.streams.batch_history import batch_history_key
from penstock.streams.emitter import Emitter
from penstock.streams.progress import PROGRESS_KEY, find_problem, read_progress
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import landing_table, metric_statements, tier_tables
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series.metric_series import metric_series
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.tiers import HOUR
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import add, event, fill, totals
from tests.integration.pipeline.running_pipeline import (
    TIMEOUT_S,
    StartPipeline,
    wait_for_events,
    wait_for_progress,
)
from tests.waiting import wait_until


def test_queries_do_not_share_a_source_registration(
    spark: SparkSession,
    pipeline: StartPipeline,
    stream_url: str,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvm: Any = spark.sparkContext._jvm
    manager: Any = spark._jsparkSession
    environment_ids: list[int] = []

    def register(session: SparkSession) -> None:
        register_source(session)
        source = manager.sessionState().dataSourceManager().lookupDataSource(FORMAT)
        environment_ids.append(int(jvm.System.identityHashCode(source.dataSourceCls().envVars())))

    monkeypatch.setattr(job, "register_source", register)
    with pipeline(stream_url, warehouse_url, DEFINITIONS):
        wait_until(lambda: len(environment_ids) >= len(DEFINITIONS), TIMEOUT_S, "all queries are started")
    assert len(set(environment_ids)) == len(environment_ids)


BROKEN = MetricDefinition(
    name="broken",
    dimensions=(Dimension("house", "hs", "where it is"),),
    counters=(Measure("opened", "op", "times it was opened"),),
    shards=1,
)
"""A metric whose landing table has the wrong columns until the test repairs it: every batch of it fails."""


def create_wrong_table(warehouse: Warehouse) -> None:
    warehouse.command(f"CREATE TABLE {landing_table(BROKEN)} (other UInt8) ENGINE = Null")


def test_a_query_that_keeps_failing_does_not_end_the_others(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    create_wrong_table(warehouse)
    redis.xadd(BROKEN.stream_keys[0], {"hs": "mill", "op": 3})
    fill(redis, 10)
    with pipeline(stream_url, warehouse.url, (*DEFINITIONS, BROKEN)):
        progress = wait_for_progress(
            stream_url,
            lambda p: p["metrics"]["broken"]["failures"] >= 4 and p["state"] == "failing",
            "the query has failed more often than a pipeline with only failing queries survives",
        )
        assert {name: report["state"] for name, report in progress["metrics"].items()} == {
            "queue": "running",
            "worker": "running",
            "broken": "failed",
        }
        assert [report["failures"] for report in progress["metrics"].values()][:2] == [0, 0]
        assert progress["metrics"]["broken"]["restarts"] >= 3
        assert "The broken query has failed" in str(find_problem(progress))
        fill(redis, 5, start=10)
        wait_for_events(warehouse, 15)
        # The query recovers by itself when its cause is gone, and has counted every event once.
        warehouse.command(f"DROP TABLE {landing_table(BROKEN)}")
        for statement in metric_statements(BROKEN):
            warehouse.command(statement)
        recovered = wait_for_progress(stream_url, lambda p: p["state"] == "running", "all queries run")
        assert find_problem(recovered) is None
        [hours] = [table.name for table in tier_tables(BROKEN) if table.tier is HOUR]
        wait_until(partial(has_events, warehouse, hours, 1), TIMEOUT_S, "the event is counted")


def test_a_pipeline_whose_queries_all_keep_failing_ends(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    create_wrong_table(warehouse)
    redis.xadd(BROKEN.stream_keys[0], {"hs": "mill", "op": 3})
    with (
        pytest.raises(AssertionError, match="All queries keep failing"),
        pipeline(stream_url, warehouse.url, (BROKEN,)),
    ):
        wait_for_progress(stream_url, lambda p: p["state"] == "stopped", "the pipeline ends")


def test_a_pipeline_is_starting_until_its_queries_read(
    pipeline: StartPipeline,
    redis: Redis,
    stream_url: str,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_start = threading.Event()

    def register_later(session: SparkSession) -> None:
        may_start.wait(deadline_s(TIMEOUT_S))
        register_source(session)

    monkeypatch.setattr(job, "register_source", register_later)
    fill(redis, 10)
    with pipeline(stream_url, warehouse.url):
        progress = wait_for_progress(stream_url, lambda p: p["state"] == "starting", "the pipeline starts")
        assert "does not read its streams yet" in str(find_problem(progress))
        may_start.set()
        wait_for_progress(stream_url, lambda p: p["state"] == "running", "the pipeline runs")
        assert totals(warehouse)[0][0] == 10, "the first trigger of the query is over"
    assert "has stopped" in str(find_problem(read_progress(stream_url)))


def test_every_event_is_counted_once_in_every_tier(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 300)
    with pipeline(stream_url, warehouse.url):
        wait_for_events(warehouse, 300)
        total += fill(redis, 700, start=300)
        add(redis, 0, event(eq="not a number"))
        wait_for_events(warehouse, 1_000)
        progress = wait_for_progress(
            stream_url,
            lambda p: p["rejected"] == 1 and set(p["lag"].values()) == {0},
            "the report says that everything is counted and one entry was set aside",
        )
    waits = sum(n % 3 + n % 11 for n in range(1_000))
    assert totals(warehouse) == [(1_000, total, 2_000, waits)] * 3
    assert progress["lost"] == 0
    assert progress["batch_id"] >= 1
    assert progress["query_id"]
    assert progress["freshness"] is not None
    assert abs(progress["freshness"] - progress["at"]) < 60
    assert_batches_are_recorded(redis, entries=1_001)
    [executor] = progress["spark"]["executors"]
    assert (executor["id"], executor["cores"], executor["failed_tasks"]) == ("driver", 1, 0)
    assert executor["completed_tasks"] >= 2
    assert 0 < progress["spark"]["heap_bytes"] <= progress["spark"]["heap_limit_bytes"]
    assert (read_progress(stream_url) or {})["spark"] is None, "Spark has stopped"


def assert_batches_are_recorded(redis: Redis, entries: int) -> None:
    """Assert that every batch is in the history, with the parts of its duration."""
    batches = [json.loads(text) for text in redis.lrange(batch_history_key("queue"), 0, -1)]
    assert sum(batch["entries"] for batch in batches) == entries
    assert [batch["batch_id"] for batch in batches] == list(range(len(batches)))[::-1]
    for batch in batches:
        parts_ms = sum(batch[part] for part in ("plan_ms", "read_ms", "insert_ms", "checkpoint_ms"))
        assert min(batch["plan_ms"], batch["read_ms"], batch["insert_ms"], batch["checkpoint_ms"]) > 0
        assert parts_ms <= batch["duration_ms"] + len(batch), "Spark rounds its times to milliseconds"


def test_a_restarted_pipeline_continues_from_its_checkpoint(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 100)
    with pipeline(stream_url, warehouse.url):
        wait_for_events(warehouse, 100)
    assert (read_progress(stream_url) or {})["state"] == "stopped"
    total += fill(redis, 100, start=100)
    with pipeline(stream_url, warehouse.url):
        wait_for_events(warehouse, 200)
    assert [tier[:2] for tier in totals(warehouse)] == [(200, total)] * 3


def test_an_idle_pipeline_keeps_reporting(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    with pipeline(stream_url, warehouse.url, DEFINITIONS):
        first = wait_for_progress(stream_url, lambda p: p["state"] == "running", "a first report")
        second = wait_for_progress(stream_url, lambda p: p["at"] > first["at"], "another report")
    assert second["metrics"]["queue"]["entries"] == 0
    assert second["lag"] == dict.fromkeys((key for d in DEFINITIONS for key in d.stream_keys), 0)


def test_a_batch_waits_for_an_unreachable_clickhouse(
    pipeline: StartPipeline, redis: Redis, stream_url: str, open_tmp_path: Path
) -> None:
    server = ClickHouse(open_tmp_path, any_free_port())
    with running(server):
        migrate(server.url)
    total = fill(redis, 50)
    with pipeline(stream_url, server.url):
        # The pipeline waits for ClickHouse at its start, and later with a batch.
        with running(server):
            wait_for_events(connect(server.url), 50)
        total += fill(redis, 50, start=50)
        wait_for_progress(
            stream_url,
            lambda p: p["state"] == "waiting for ClickHouse",
            "the report says what the pipeline waits for",
        )
        with running(server):
            wait_for_events(connect(server.url), 100)
            assert [tier[:2] for tier in totals(connect(server.url))] == [(100, total)] * 3


def test_the_pipeline_waits_for_an_unreachable_redis(
    pipeline: StartPipeline, warehouse: Warehouse, open_tmp_path: Path
) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with pipeline(server.url, warehouse.url):
        with running(server), Redis.from_url(server.url) as client:
            total = fill(client, 50)
            wait_for_events(warehouse, 50)
        with running(server), Redis.from_url(server.url) as client:
            client.delete(PROGRESS_KEY)
            total += fill(client, 50, start=50)
            wait_for_events(warehouse, 100)
            wait_for_progress(server.url, lambda p: p["state"] == "running", "the pipeline reports again")
    assert [tier[:2] for tier in totals(warehouse)] == [(100, total)] * 3


def has_events(warehouse: Warehouse, table: str, count: int) -> bool:
    [row] = warehouse.query(f"SELECT sum(events) AS events FROM {table}")
    return bool(row["events"] == count)


def planners() -> set[psutil.Process]:
    return set(filter(is_planner, psutil.Process().children(recursive=True)))


def is_planner(process: psutil.Process) -> bool:
    try:
        return any("python_streaming_source_runner" in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:  # also raised for a zombie
        return False


def test_a_query_whose_planner_was_killed_is_restarted(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 20)
    old_planners = planners()  # planners of stopped queries may still run
    with pipeline(stream_url, warehouse.url):
        wait_for_events(warehouse, 20)
        for planner in wait_until(lambda: planners() - old_planners, TIMEOUT_S, "the query has a planner"):
            planner.kill()
            planner.wait(deadline_s(TIMEOUT_S))
        total += fill(redis, 20, start=20)
        wait_for_events(warehouse, 40)
    assert [tier[:2] for tier in totals(warehouse)] == [(40, total)] * 3


def test_a_new_metric_needs_only_a_definition(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    oven_metric = MetricDefinition(
        name="oven",
        dimensions=(Dimension("bakery", "bk", "where it stands"),),
        counters=(Measure("loaves", "lv", "loaves baked"),),
        gauges=(Measure("heat", "ht", "degrees"),),
        shards=1,
    )
    door_metric = MetricDefinition(
        name="door",
        dimensions=(Dimension("house", "hs", "where it is"),),
        counters=(Measure("opened", "op", "times it was opened"),),
        gauges=(Measure("ajar", "aj", "doors that stand open"),),
        samples=(Measure("open_ms", "ms", "how long it stood open"),),
    )
    for statement in (*metric_statements(oven_metric), *metric_statements(door_metric)):
        warehouse.command(statement)
    now_s = int(time.time())
    at_ms = (now_s - 30) * 1000
    fill(redis, 10)
    for number in range(10):
        redis.xadd(oven_metric.stream_keys[0], {"bk": "north", "lv": number, "ht": 200 - number, "t": at_ms})
        redis.xadd(
            door_metric.stream_keys[number % 2], {"hs": "mill", "op": 2, "ms": 100 * number, "t": at_ms}
        )
    redis.xadd(door_metric.stream_keys[0], {"hs": "mill", "aj": 3, "t": (now_s - 20) * 1000})
    with pipeline(stream_url, warehouse.url, (QUEUE, oven_metric, door_metric)):
        wait_for_events(warehouse, 10)
        for definition, events in ((oven_metric, 10), (door_metric, 11)):
            [hours] = [table.name for table in tier_tables(definition) if table.tier is HOUR]
            wait_until(
                partial(has_events, warehouse, hours, events),
                TIMEOUT_S,
                f"{hours} has its {events} events",
            )
    reader = SeriesReader(warehouse)
    oven_points = metric_series(reader, oven_metric, {"bakery": "north"}, period="1m", now_s=now_s).points
    assert sum(point["loaves"] for point in oven_points) == 45
    assert oven_points[-1]["heat"] == {"max": 191, "last": 191}
    door_points = metric_series(reader, door_metric, {"house": "mill"}, period="1m", now_s=now_s).points
    [busy] = [point for point in door_points if point["opened"]]
    assert (busy["opened"], busy["open_ms"]["avg"], busy["open_ms"]["max"]) == (20, 450, 900)
    # The gauge was observed once, 20 seconds ago, and is carried forward from there.
    assert door_points[0]["ajar"]["last"] is None
    assert (door_points[-1]["ajar"]["last"], door_points[-1]["carried"]) == (3, True)


async def test_events_of_broker_processes_are_counted(
    pipeline: StartPipeline, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    now_s = int(time.time())
    emitter = Emitter(stream_url, buffer=100)
    events = WorkerEvents(emitter, WorkerIdentity("here", 1, 7, now_s))
    for second in range(10):
        gauges = {"busy_connections": second % 4, "resident_bytes": 5 << 30}
        events.add_second(now_s - 40 + second, {"push_requests": 2, "database_errors": second}, gauges, 0.05)
    events.flush()
    emitter.start()
    await emitter.stop()
    assert (emitter.emitted, emitter.dropped) == (10, 0)
    with pipeline(stream_url, warehouse.url, (WORKER,)):
        [hours] = [table.name for table in tier_tables(WORKER) if table.tier is HOUR]
        wait_until(
            partial(has_events, warehouse, hours, 10),
            TIMEOUT_S,
            "the hour tier has ten seconds of the worker",
        )
    dimensions = {"hostname": "here", "worker": "1"}
    points = metric_series(SeriesReader(warehouse), WORKER, dimensions, period="1m", now_s=now_s).points
    assert sum(point["push_requests"] for point in points) == 20
    assert sum(point["database_errors"] for point in points) == 45
    assert max(point["busy_connections"]["max"] or 0 for point in points) == 3
    assert points[-1]["resident_bytes"]["last"] == 5 << 30
    assert {point["late_ms"]["p95"] for point in points if point["late_ms"]["count"]} == {50}


def test_a_missing_setting_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_REDIS_URL"):
        run(Settings(clickhouse_url="http://127.0.0.1:9/default"))


def test_missing_java_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentFailed, match="Spark needs Java"):
        build_session("local[1]", tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ComponentFailed, match="no bin/java"):
        build_session("local[1]", tmp_path)
