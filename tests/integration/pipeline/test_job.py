"""The whole pipeline on the shared session: from XADD to the tiers, with servers that come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.broker.self_metrics.minute import Identity
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.config import Settings
from penstock.definitions import DEFINITIONS, QUEUE, WORKER, Dimension, Measure, MetricDefinition
from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.errors import ComponentFailed, ConfigError
from penstock.pipeline import job
from penstock.pipeline.job import Pipeline, run
from penstock.pipeline.session import build_session, register_source
from penstock.pipeline.source.redis_streams import FORMAT
from penstock.streams.emitter import Emitter
from penstock.streams.progress import PROGRESS_KEY, read_progress
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema import metric_statements, tier_tables
from penstock.warehouse.schema_migrations import migrate
from penstock.warehouse.series.metric_series import metric_series
from penstock.warehouse.series.points import SeriesReader
from penstock.warehouse.tiers import HOUR
from tests.integration.pipeline.events import event, fill, totals
from tests.waiting import wait_until

Start = Callable[..., AbstractContextManager[None]]
PATIENCE_S = 60


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run the pipeline beside the test; leaving the context stops it and shows what it died of."""
    monkeypatch.setattr(job, "BEAT_S", 0.3)

    @contextmanager
    def start(
        redis_url: str, clickhouse_url: str, definitions: tuple[MetricDefinition, ...] = DEFINITIONS
    ) -> Iterator[None]:
        settings = Settings(redis_url=redis_url, clickhouse_url=clickhouse_url, trigger_ms=200)
        stopping = threading.Event()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                Pipeline(spark, settings, tmp_path / "checkpoint", definitions, stopping).run()
            except BaseException as error:  # noqa: BLE001 - handed to the test
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(PATIENCE_S)
        assert not failed, failed
        assert not thread.is_alive()

    return start


def until_events(warehouse: Warehouse, count: int) -> None:
    wait_until(lambda: totals(warehouse)[2][0] >= count, PATIENCE_S, f"{count} events are in the hour tier")


def progress_where(redis_url: str, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = read_progress(redis_url)
        assert found is None or condition(found), found
        return found

    found = wait_until(look, PATIENCE_S, what)
    assert found is not None
    return found


def test_queries_that_start_at_once_share_no_notes_of_spark(
    spark: SparkSession,
    pipeline: Start,
    stream_url: str,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvm: Any = spark.sparkContext._jvm
    manager: Any = spark._jsparkSession
    loaded: list[int] = []

    def register(session: SparkSession) -> None:
        register_source(session)
        source = manager.sessionState().dataSourceManager().lookupDataSource(FORMAT)
        loaded.append(int(jvm.System.identityHashCode(source.dataSourceCls().envVars())))

    monkeypatch.setattr(job, "register_source", register)
    with pipeline(stream_url, warehouse_url):
        wait_until(lambda: len(loaded) >= len(DEFINITIONS), PATIENCE_S, "all queries are started")
    assert len(set(loaded)) == len(loaded)


def test_what_enters_the_streams_is_counted_once_in_every_tier(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 300)
    with pipeline(stream_url, warehouse.url):
        until_events(warehouse, 300)
        total += fill(redis, 700, start=300)
        redis.xadd(QUEUE.stream_keys[0], event(eq="not a number"))
        until_events(warehouse, 1_000)
        found = progress_where(
            stream_url,
            lambda p: p["rejected"] == 1 and set(p["lag"].values()) == {0},
            "the report says that everything is counted and one entry was set aside",
        )
    waits = sum(n % 3 + n % 11 for n in range(1_000))
    assert totals(warehouse) == [(1_000, total, 2_000, waits)] * 3
    assert found["lost"] == 0
    assert found["batch_id"] >= 1
    assert found["query_id"]
    assert found["freshness"] is not None
    assert abs(found["freshness"] - found["at"]) < 60


def test_a_pipeline_that_was_stopped_goes_on_where_it_was(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 100)
    with pipeline(stream_url, warehouse.url):
        until_events(warehouse, 100)
    assert (read_progress(stream_url) or {})["state"] == "stopped"
    total += fill(redis, 100, start=100)
    with pipeline(stream_url, warehouse.url):
        until_events(warehouse, 200)
    assert [tier[:2] for tier in totals(warehouse)] == [(200, total)] * 3


def test_an_idle_pipeline_still_reports(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    with pipeline(stream_url, warehouse.url):
        first = progress_where(stream_url, lambda p: p["state"] == "running", "a first report")
        second = progress_where(stream_url, lambda p: p["at"] > first["at"], "another report")
    assert second["metrics"]["queue"]["entries"] == 0
    assert second["lag"] == dict.fromkeys((key for d in DEFINITIONS for key in d.stream_keys), 0)


def test_a_batch_waits_for_a_clickhouse_that_is_away(
    pipeline: Start, redis: Redis, stream_url: str, open_tmp_path: Path
) -> None:
    server = ClickHouse(open_tmp_path, any_free_port())
    with running(server):
        migrate(server.url)
    total = fill(redis, 50)
    with pipeline(stream_url, server.url):
        # The very first thing it asks is ClickHouse's; it waits there, and then for its batch.
        with running(server):
            until_events(connect(server.url), 50)
        total += fill(redis, 50, start=50)
        progress_where(
            stream_url, lambda p: p["state"] == "waiting for ClickHouse", "it says what it waits for"
        )
        with running(server):
            until_events(connect(server.url), 100)
            assert [tier[:2] for tier in totals(connect(server.url))] == [(100, total)] * 3


def test_it_waits_for_a_redis_that_is_away(
    pipeline: Start, warehouse: Warehouse, open_tmp_path: Path
) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    with pipeline(server.url, warehouse.url):
        with running(server), Redis.from_url(server.url) as client:
            total = fill(client, 50)
            until_events(warehouse, 50)
        with running(server), Redis.from_url(server.url) as client:
            client.delete(PROGRESS_KEY)
            total += fill(client, 50, start=50)
            until_events(warehouse, 100)
            progress_where(server.url, lambda p: p["state"] == "running", "it reports again")
    assert [tier[:2] for tier in totals(warehouse)] == [(100, total)] * 3


def planners() -> set[psutil.Process]:
    return set(filter(is_planner, psutil.Process().children(recursive=True)))


def is_planner(process: psutil.Process) -> bool:
    try:
        return any("python_streaming_source_runner" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # or a zombie, which is one of these
        return False


def test_a_query_whose_planner_died_is_started_again(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 20)
    others = planners()  # those of queries that were stopped may linger
    with pipeline(stream_url, warehouse.url):
        until_events(warehouse, 20)
        for planner in wait_until(lambda: planners() - others, PATIENCE_S, "the query has a planner"):
            planner.kill()
            planner.wait(PATIENCE_S)
        total += fill(redis, 20, start=20)
        until_events(warehouse, 40)
    assert [tier[:2] for tier in totals(warehouse)] == [(40, total)] * 3


def test_metrics_run_side_by_side_and_a_new_one_needs_nothing_but_its_definition(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    ovens = MetricDefinition(
        name="oven",
        dimensions=(Dimension("bakery", "bk", "where it stands"),),
        counters=(Measure("loaves", "lv", "loaves baked"),),
        gauges=(Measure("heat", "ht", "degrees"),),
        shards=1,
    )
    doors = MetricDefinition(
        name="door",
        dimensions=(Dimension("house", "hs", "where it is"),),
        counters=(Measure("opened", "op", "times it was opened"),),
        gauges=(Measure("ajar", "aj", "doors that stand open"),),
        samples=(Measure("open_ms", "ms", "how long it stood open"),),
    )
    for statement in (*metric_statements(ovens), *metric_statements(doors)):
        warehouse.command(statement)
    now_s = int(time.time())
    at_ms = (now_s - 30) * 1000
    fill(redis, 10)
    for number in range(10):
        redis.xadd(ovens.stream_keys[0], {"bk": "north", "lv": number, "ht": 200 - number, "t": at_ms})
        redis.xadd(doors.stream_keys[number % 2], {"hs": "mill", "op": 2, "ms": 100 * number, "t": at_ms})
    redis.xadd(doors.stream_keys[0], {"hs": "mill", "aj": 3, "t": (now_s - 20) * 1000})
    with pipeline(stream_url, warehouse.url, (*DEFINITIONS, ovens, doors)):
        until_events(warehouse, 10)
        for definition, events in ((ovens, 10), (doors, 11)):
            [hours] = [table.name for table in tier_tables(definition) if table.tier is HOUR]
            wait_until(
                lambda hours=hours, events=events: (
                    warehouse.query(f"SELECT sum(events) AS n FROM {hours}")[0]["n"] == events
                ),
                PATIENCE_S,
                f"{hours} has its {events} events",
            )
    reader = SeriesReader(warehouse)
    oven = metric_series(reader, ovens, {"bakery": "north"}, period="1m", now_s=now_s)["timeseries"]
    assert sum(point["loaves"] for point in oven) == 45
    assert oven[-1]["heat"] == {"max": 191, "last": 191}
    door = metric_series(reader, doors, {"house": "mill"}, period="1m", now_s=now_s)["timeseries"]
    [busy] = [point for point in door if point["opened"]]
    assert (busy["opened"], busy["open_ms"]["avg"], busy["open_ms"]["max"]) == (20, 450, 900)
    # The gauge was seen once, 20 seconds ago, and is carried on from there.
    assert door[0]["ajar"]["last"] is None
    assert (door[-1]["ajar"]["last"], door[-1]["carried"]) == (3, True)


async def test_broker_processes_are_a_metric_like_queues(
    pipeline: Start, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    now_s = int(time.time())
    emitter = Emitter(stream_url, buffer=100)
    events = WorkerEvents(emitter, Identity("here", 1, 7, now_s))
    for second in range(10):
        gauges = {"busy_connections": second % 4, "resident_bytes": 5 << 30}
        events.add(now_s - 40 + second, {"push_requests": 2, "database_errors": second}, gauges, 0.05)
    events.flush()
    emitter.start()
    await emitter.stop()
    assert (emitter.emitted, emitter.dropped) == (10, 0)
    with pipeline(stream_url, warehouse.url):
        [hours] = [table.name for table in tier_tables(WORKER) if table.tier is HOUR]
        wait_until(
            lambda: warehouse.query(f"SELECT sum(events) AS n FROM {hours}")[0]["n"] == 10,
            PATIENCE_S,
            "the hour tier has ten seconds of the worker",
        )
    named = {"hostname": "here", "worker": "1"}
    points = metric_series(SeriesReader(warehouse), WORKER, named, period="1m", now_s=now_s)["timeseries"]
    assert sum(point["push_requests"] for point in points) == 20
    assert sum(point["database_errors"] for point in points) == 45
    assert max(point["busy_connections"]["max"] or 0 for point in points) == 3
    assert points[-1]["resident_bytes"]["last"] == 5 << 30
    assert {point["late_ms"]["p95"] for point in points if point["late_ms"]["count"]} == {50}


def test_the_pipeline_says_which_setting_it_misses() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_REDIS_URL"):
        run(Settings(clickhouse_url="http://127.0.0.1:9/default"))


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ComponentFailed, match="Spark needs Java"):
        build_session("local[1]", tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ComponentFailed, match="no bin/java"):
        build_session("local[1]", tmp_path)
