"""Killed between archive and insert, and killed in a rebuild: every event is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings, as_environment
from penstock.streams.batch_lock import hold_key
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.archive.archive_content import archived, content, emit, rebuilt

PATIENCE_S = 240


def killed(script: str, settings: Settings, java_home: str) -> subprocess.CompletedProcess[str]:
    # What was written before the kill must not be lost in a buffer.
    own = {"JAVA_HOME": java_home, "PYTHONUNBUFFERED": "1"}
    environment = os.environ | as_environment(settings) | own
    command = [sys.executable, str(Path(__file__).with_name(script))]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended


@pytest.mark.timeout(600)
def test_kills_leave_every_event_once_in_archive_and_tables(
    java_home: str, spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 20)
    killed("killed_before_insert.py", archiving, java_home)
    assert len(archived(archiving)) == 60
    assert content(warehouse)["queue_environment_1h"] == []

    emit(redis, 10)
    told = json.loads(killed("killed_rebuild.py", archiving, java_home).stdout)
    assert (told["complete"], told["entries"], told["left"], told["by"]) == (True, 90, 0, "drain")
    assert len(archived(archiving)) == 90
    live = content(warehouse)  # of which two tables are swapped
    assert {name: sum(row["n"] for row in rows) for name, rows in live.items()} == {
        name: 90 if "environment" in name else 60 for name in live
    }
    assert 0 < redis.pttl(hold_key("queue")) <= 60_000  # the pipeline goes on by itself
    redis.delete(hold_key("queue"))
    assert [plan.rebuilt for plan in rebuilt(spark, archiving, redis, warehouse)] == [True]
    assert content(warehouse) == live
    left = warehouse.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert not [row["name"] for row in left if "rebuild" in row["name"]]
