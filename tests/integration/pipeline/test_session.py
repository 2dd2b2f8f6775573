"""Tests of the Spark session of a pipeline process: its Python processes, and its web UI."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.warehouse.clickhouse_client import Warehouse
from tests.chaos.pipeline.killable import PYTHON_PATH, KillableJob
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import fill, totals
from tests.waiting import wait_until

TIMEOUT_S = 120
SLOW_IMPORTS = Path(__file__).with_name("slow_imports")


@pytest.fixture
def environment(java_home: str, stream_url: str, warehouse_url: str) -> dict[str, str]:
    return {
        "JAVA_HOME": java_home,
        "PENSTOCK_REDIS_URL": stream_url,
        "PENSTOCK_CLICKHOUSE_URL": warehouse_url,
    }


def test_a_query_starts_although_imports_take_longer_than_spark_waits(
    environment: dict[str, str], redis: Redis, warehouse: Warehouse, tmp_path: Path
) -> None:
    total = fill(redis, 50)
    python_path = os.pathsep.join((str(SLOW_IMPORTS), PYTHON_PATH))
    job = KillableJob(tmp_path, environment | {"PYTHONPATH": python_path})
    with job.running(QUEUE):
        wait_until(lambda: totals(warehouse)[2][0] == 50, TIMEOUT_S, "the events are counted")
    assert [tier[:2] for tier in totals(warehouse)] == [(50, total)] * 3
    assert "query failed" not in job.log_tail()


def test_a_pipeline_in_a_home_with_a_space_and_an_umlaut_counts_and_shows_the_web_ui_of_spark(
    environment: dict[str, str], redis: Redis, warehouse: Warehouse, open_tmp_path: Path
) -> None:
    assert " " in str(open_tmp_path)
    assert not str(open_tmp_path).isascii()
    fill(redis, 50)
    port = any_free_port()
    job = KillableJob(open_tmp_path, environment | {"LC_ALL": "C", "PENSTOCK_SPARK_UI_PORT": str(port)})
    with job.running(QUEUE):
        wait_until(lambda: totals(warehouse)[2][0] == 50, TIMEOUT_S, "the events are counted")
        wait_until(lambda: ">queue<" in read_streaming_page(port), TIMEOUT_S, "the UI shows the query")


def read_streaming_page(port: int) -> str:
    url = f"http://127.0.0.1:{port}/StreamingQuery/"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=deadline_s(10)) as response:
        return str(response.read().decode())


def test_python_processes_import_the_installed_pyspark_not_an_archive(spark: SparkSession) -> None:
    [path] = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert path == pyspark.__file__
