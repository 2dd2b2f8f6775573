"""Tests of draining, resetting, and checkpoints that cannot be used."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis import Redis
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.errors import ComponentFailed
from penstock.pipeline import control, job
from penstock.pipeline.checkpoint import (
    STREAMS_KEY,
    CheckpointInUse,
    CheckpointLock,
    CheckpointUnusable,
    check_servers,
    checkpoint_path,
)
from penstock.pipeline.job import Pipeline
from penstock.streams.drain_target import DrainTarget
from penstock.streams.positions import Position, read_lag, write_positions
from penstock.streams.progress import Progress, read_progress, write_progress
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema import MIGRATIONS_TABLE
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import fill, totals
from tests.waiting import wait_until


@pytest.fixture
def settings(stream_url: str, warehouse_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, redis_url=stream_url, clickhouse_url=warehouse_url, trigger_ms=200)


def run_drain(spark: SparkSession, settings: Settings, redis: Redis) -> bool:
    """Do the same as `job.drain` for the queue metric, on the session of the tests."""
    target = DrainTarget.capture(redis, QUEUE.stream_keys)
    pipeline = Pipeline(spark, settings, checkpoint_path(settings), (QUEUE,), threading.Event())
    return pipeline.drain(target, lambda left: None)


def test_a_drain_counts_all_entries_and_stops(
    spark: SparkSession, settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    total = fill(redis, 500)
    assert run_drain(spark, settings, redis)
    assert (read_progress(settings.redis_url) or {})["state"] == "stopped"
    total += fill(redis, 300, start=500)
    assert run_drain(spark, settings, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(800, total)] * 3
    assert [read_lag(redis, key) for key in QUEUE.stream_keys] == [0, 0]

    # A reset moves the checkpoint away, and the next start continues from the position of the group.
    aside = control.reset(settings)
    assert aside is not None
    assert (aside / "queue" / "offsets").is_dir()
    total += fill(redis, 100, start=800)
    assert run_drain(spark, settings, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(900, total)] * 3

    # With from_beginning the remaining entries count again, and trimmed entries do not count as lost.
    remaining = sum(redis.xlen(key) for key in QUEUE.stream_keys)
    assert remaining > 0
    control.reset(settings, from_beginning=True)
    assert run_drain(spark, settings, redis)
    assert totals(warehouse)[0][0] == 900 + remaining
    assert (read_progress(settings.redis_url) or {})["lost"] == 0


def fifth_id(redis: Redis, key: str) -> str:
    entry_id = (redis.xrange(key, count=5) or [])[4][0]
    assert isinstance(entry_id, bytes)
    return entry_id.decode()


def test_a_drain_waits_for_a_running_pipeline(settings: Settings, redis: Redis) -> None:
    fill(redis, 10)
    reports: list[tuple[int, int, str]] = []
    results: list[control.DrainResult] = []
    with CheckpointLock(checkpoint_path(settings)):
        waiting = threading.Thread(
            target=lambda: results.append(control.drain(settings, lambda *report: reports.append(report)))
        )
        waiting.start()
        wait_until(lambda: reports, 20, "the drain reports that it waits")
        fill(redis, 4, start=10)  # a drain does not wait for entries added later
        write_positions(redis, {key: Position(fifth_id(redis, key), 5) for key in QUEUE.stream_keys})
        waiting.join(deadline_s(20))
    assert reports[0] == (10, 10, "running")
    [result] = results
    assert (result.complete, result.entries, result.left, result.by) == (True, 10, 0, "running")


def test_a_drain_of_empty_streams_does_not_start_spark(settings: Settings) -> None:
    result = control.drain(settings, lambda *report: None)
    assert (result.complete, result.entries, result.by) == (True, 0, "nobody")


def test_a_drain_without_redis_fails_with_its_masked_url(settings: Settings) -> None:
    unreachable = settings.model_copy(update={"redis_url": "redis://:hush@127.0.0.1:9/0"})
    with pytest.raises(ComponentFailed, match=r"Redis at redis://:\*\*\*@127.0.0.1:9/0 does not answer"):
        control.drain(unreachable, lambda *report: None)


def progress_of(host: str, pid: int = 1) -> Progress:
    return {"at": time.time(), "state": "running", "host": host, "pid": pid}  # type: ignore[typeddict-item]


def test_a_checkpoint_in_use_cannot_be_reset(settings: Settings, redis: Redis) -> None:
    directory = checkpoint_path(settings)
    (directory / "queue").mkdir(parents=True)
    with CheckpointLock(directory), pytest.raises(CheckpointInUse, match="Stop it first"):
        control.reset(settings)
    write_progress(redis, progress_of("another-machine"))
    with pytest.raises(CheckpointInUse, match="another machine"):
        control.reset(settings)
    assert directory.exists()
    write_progress(redis, progress_of(os.uname().nodename))  # by a local pipeline that was just killed
    assert control.reset(settings) is not None
    assert not directory.exists()


def test_a_checkpoint_can_be_reset_while_the_platform_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = checkpoint_path(Settings(home=tmp_path))
    (directory / "queue").mkdir(parents=True)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["pipeline", "reset", "--yes"])
    assert result.exit_code == 0, result.output
    assert not directory.exists()


def test_a_second_pipeline_on_a_checkpoint_is_refused(settings: Settings) -> None:
    with CheckpointLock(checkpoint_path(settings)), pytest.raises(CheckpointInUse):
        job.run(settings)


def test_a_second_pipeline_on_the_streams_is_refused(settings: Settings, redis: Redis) -> None:
    for host in ("another-machine", os.uname().nodename):
        write_progress(redis, progress_of(host, pid=os.getppid()))
        with pytest.raises(CheckpointInUse, match=f"on {host}.: two pipelines would count"):
            job.run(settings)
    # The report of a local pipeline that was just killed is ignored; the next check fails.
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    write_progress(redis, progress_of(os.uname().nodename, pid=ended.pid))
    directory = checkpoint_path(settings) / "queue"
    directory.mkdir(parents=True)
    (directory / "identity.json").write_text('{"Redis": "another"}')
    redis.set(STREAMS_KEY, "this one")
    with pytest.raises(CheckpointUnusable):
        job.run(settings)


def test_a_damaged_checkpoint_is_refused_before_spark_starts(settings: Settings) -> None:
    directory = checkpoint_path(settings) / "queue"
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"1"}')
    (directory / "offsets" / "0").write_text("")
    with pytest.raises(CheckpointUnusable, match="offsets/0"):
        job.run(settings)


@pytest.mark.parametrize("server", ["Redis", "ClickHouse database"])
def test_a_checkpoint_of_other_servers_is_refused(
    settings: Settings, redis: Redis, warehouse: Warehouse, server: str
) -> None:
    directory = checkpoint_path(settings) / "queue"
    check_servers(directory, QUEUE, redis, warehouse)
    redis.delete(STREAMS_KEY)  # a Redis that lost its data keeps its identity
    check_servers(directory, QUEUE, redis, warehouse)
    if server == "Redis":
        redis.set(STREAMS_KEY, "another")
    else:
        warehouse.command(
            f"ALTER TABLE {MIGRATIONS_TABLE} UPDATE applied_at = now64(3) WHERE 1", {"mutations_sync": 1}
        )
    with pytest.raises(CheckpointUnusable, match=f"another {server} .*penstock pipeline reset"):
        job.run(settings)


def test_damage_that_only_spark_detects_is_reported_with_a_hint(
    spark: SparkSession, settings: Settings, redis: Redis
) -> None:
    fill(redis, 4)
    assert run_drain(spark, settings, redis)
    offsets = checkpoint_path(settings) / "queue" / "offsets"
    newest = max(int(file.name) for file in offsets.iterdir() if file.name.isdecimal())
    file = offsets / str(newest)
    file.write_text(file.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":9'))
    fill(redis, 4, start=4)
    with pytest.raises(CheckpointUnusable, match="penstock pipeline reset"):
        run_drain(spark, settings, redis)
