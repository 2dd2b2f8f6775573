"""Test that kills between archive and insert, and during a rebuild, leave every event once."""

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
from penstock.streams.batch_lock import batch_lock_key
from penstock.warehouse.clickhouse_client import Warehouse
from tests.deadlines import deadline_s
from tests.integration.pipeline.archive.archive_content import archived_rows, emit, rebuild_all, table_content

TIMEOUT_S = 240


def run_until_killed(script: str, settings: Settings, java_home: str) -> subprocess.CompletedProcess[str]:
    # Unbuffered, so that output written before the kill is not lost.
    own_variables = {"JAVA_HOME": java_home, "PYTHONUNBUFFERED": "1"}
    environment = os.environ | as_environment(settings) | own_variables
    command = [sys.executable, str(Path(__file__).with_name(script))]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=deadline_s(TIMEOUT_S)
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended


@pytest.mark.timeout(600)
def test_kills_leave_every_event_once_in_archive_and_tables(
    java_home: str, spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    emit(redis, 20)
    run_until_killed("killed_before_insert.py", archive_settings, java_home)
    assert len(archived_rows(archive_settings)) == 60
    assert table_content(warehouse)["queue_environment_1h"] == []

    emit(redis, 10)
    result = json.loads(run_until_killed("killed_rebuild.py", archive_settings, java_home).stdout)
    assert (result["complete"], result["entries"], result["left"], result["by"]) == (True, 90, 0, "drain")
    assert len(archived_rows(archive_settings)) == 90
    live = table_content(warehouse)  # with two tables swapped
    assert {name: sum(row["n"] for row in rows) for name, rows in live.items()} == {
        name: 90 if "environment" in name else 60 for name in live
    }
    assert 0 < redis.pttl(batch_lock_key(redis, "queue")) <= 60_000  # the hold expires
    redis.delete(batch_lock_key(redis, "queue"))
    assert [plan.rebuilt for plan in rebuild_all(spark, archive_settings, redis, warehouse)] == [True]
    assert table_content(warehouse) == live
    tables = warehouse.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert not [row["name"] for row in tables if "rebuild" in row["name"]]
