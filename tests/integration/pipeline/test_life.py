"""Draining, resetting, and checkpoints that cannot be used."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import DEFINITIONS, QUEUE
from penstock.errors import ComponentFailed
from penstock.pipeline import control, job
from penstock.pipeline.checkpoint import CheckpointInUse, CheckpointLock, CheckpointUnusable, checkpoint_of
from penstock.pipeline.job import Pipeline
from penstock.pipeline.server_identity import STREAMS_KEY, check_servers
from penstock.streams.drain_target import Goal
from penstock.streams.positions import Position, read_lag, write_positions
from penstock.streams.progress import Progress, read_progress, write_progress
from penstock.warehouse.clickhouse_client import Warehouse
from penstock.warehouse.schema_migrations import RECORD
from tests.integration.pipeline.events import fill, totals
from tests.waiting import wait_until


@pytest.fixture
def settings(stream_url: str, warehouse_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, redis_url=stream_url, clickhouse_url=warehouse_url, trigger_ms=200)


def drained(spark: SparkSession, settings: Settings, redis: Redis) -> bool:
    """What `job.drain` does, on the tests' session."""
    goal = Goal.of(redis, QUEUE.stream_keys)
    pipeline = Pipeline(spark, settings, checkpoint_of(settings), DEFINITIONS, threading.Event())
    return pipeline.drain(goal, lambda left: None)


def test_draining_counts_what_is_there_and_stops(
    spark: SparkSession, settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    total = fill(redis, 500)
    assert drained(spark, settings, redis)
    assert (read_progress(settings.redis_url) or {})["state"] == "stopped"
    total += fill(redis, 300, start=500)
    assert drained(spark, settings, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(800, total)] * 3
    assert [read_lag(redis, key) for key in QUEUE.stream_keys] == [0, 0]

    # Given up, the checkpoint is kept aside, and the next start goes on where the group stands.
    aside = control.reset(settings)
    assert aside is not None
    assert (aside / "queue" / "offsets").is_dir()
    total += fill(redis, 100, start=800)
    assert drained(spark, settings, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(900, total)] * 3

    # Read again from the oldest entry there is: it counts again, and what was trimmed is not taken for lost.
    held = sum(redis.xlen(key) for key in QUEUE.stream_keys)
    assert held > 0
    control.reset(settings, from_beginning=True)
    assert drained(spark, settings, redis)
    assert totals(warehouse)[0][0] == 900 + held
    assert (read_progress(settings.redis_url) or {})["lost"] == 0


def test_a_drain_waits_for_the_pipeline_that_runs(settings: Settings, redis: Redis) -> None:
    fill(redis, 10)
    told: list[tuple[int, int, str]] = []
    found: list[control.Drained] = []
    with CheckpointLock(checkpoint_of(settings)):
        waiting = threading.Thread(
            target=lambda: found.append(control.drain(settings, lambda *words: told.append(words)))
        )
        waiting.start()
        wait_until(lambda: told, 20, "it says that it waits")
        fill(redis, 4, start=10)  # what comes later is none of its business
        ends = {key: redis.xrange(key)[4][0].decode() for key in QUEUE.stream_keys}
        write_positions(redis, {key: Position(entry, 5) for key, entry in ends.items()})
        waiting.join(20)
    assert told[0] == (10, 10, "running")
    assert [(one.complete, one.entries, one.left, one.by) for one in found] == [(True, 10, 0, "running")]


def test_a_drain_with_nothing_to_do_starts_nothing(settings: Settings) -> None:
    found = control.drain(settings, lambda *words: None)
    assert (found.complete, found.entries, found.by) == (True, 0, "nobody")


def test_a_drain_without_redis_says_so(settings: Settings) -> None:
    away = settings.model_copy(update={"redis_url": "redis://:hush@127.0.0.1:9/0"})
    with pytest.raises(ComponentFailed, match=r"Redis at redis://:\*\*\*@127.0.0.1:9/0 does not answer"):
        control.drain(away, lambda *words: None)


def report(host: str, pid: int = 1) -> Progress:
    return {"at": time.time(), "state": "running", "host": host, "pid": pid}  # type: ignore[typeddict-item]


def test_a_checkpoint_in_use_is_not_given_up(settings: Settings, redis: Redis) -> None:
    place = checkpoint_of(settings)
    (place / "queue").mkdir(parents=True)
    with CheckpointLock(place), pytest.raises(CheckpointInUse, match="stop it first"):
        control.reset(settings)
    write_progress(redis, report("another-machine"))
    with pytest.raises(CheckpointInUse, match="another machine"):
        control.reset(settings)
    assert place.exists()
    write_progress(redis, report(os.uname().nodename))  # of a pipeline that was killed here a moment ago
    assert control.reset(settings) is not None
    assert not place.exists()


def test_a_second_pipeline_on_a_checkpoint_is_refused(settings: Settings) -> None:
    with CheckpointLock(checkpoint_of(settings)), pytest.raises(CheckpointInUse):
        job.run(settings)


def test_a_second_pipeline_on_the_streams_is_refused(settings: Settings, redis: Redis) -> None:
    for host in ("another-machine", os.uname().nodename):
        write_progress(redis, report(host, pid=os.getppid()))
        with pytest.raises(CheckpointInUse, match=f"on {host} carries .* count them twice"):
            job.run(settings)
    # One that was killed here a moment ago is no reason; what is looked at next is.
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    write_progress(redis, report(os.uname().nodename, pid=ended.pid))
    place = checkpoint_of(settings) / "queue"
    place.mkdir(parents=True)
    (place / "identity.json").write_text('{"Redis": "another"}')
    redis.set(STREAMS_KEY, "this one")
    with pytest.raises(CheckpointUnusable):
        job.run(settings)


def test_a_damaged_checkpoint_is_refused_before_spark_starts(settings: Settings) -> None:
    place = checkpoint_of(settings) / "queue"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").write_text('{"id":"1"}')
    (place / "offsets" / "0").write_text("")
    with pytest.raises(CheckpointUnusable, match="offsets/0"):
        job.run(settings)


@pytest.mark.parametrize("whose", ["Redis", "ClickHouse database"])
def test_a_checkpoint_of_other_servers_is_refused(
    settings: Settings, redis: Redis, warehouse: Warehouse, whose: str
) -> None:
    place = checkpoint_of(settings) / "queue"
    check_servers(place, QUEUE, redis, warehouse)
    redis.delete(STREAMS_KEY)  # a Redis that came back empty is taken for the one it was
    check_servers(place, QUEUE, redis, warehouse)
    if whose == "Redis":
        redis.set(STREAMS_KEY, "another")
    else:
        warehouse.command(f"ALTER TABLE {RECORD} UPDATE applied_at = now64(3) WHERE 1", {"mutations_sync": 1})
    with pytest.raises(CheckpointUnusable, match=f"another {whose} .*penstock pipeline reset"):
        job.run(settings)


def test_damage_that_only_spark_sees_is_told_with_the_way_out(
    spark: SparkSession, settings: Settings, redis: Redis
) -> None:
    fill(redis, 4)
    assert drained(spark, settings, redis)
    offsets = checkpoint_of(settings) / "queue" / "offsets"
    newest = max(int(file.name) for file in offsets.iterdir() if file.name.isdecimal())
    file = offsets / str(newest)
    file.write_text(file.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":9'))
    fill(redis, 4, start=4)
    with pytest.raises(CheckpointUnusable, match="penstock pipeline reset"):
        drained(spark, settings, redis)
