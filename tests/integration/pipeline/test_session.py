"""Tests of the Spark session of a pipeline process: its Python processes, and its web UI."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

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
CANARY = "canary-7c2e"


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


def test_a_pipeline_in_a_home_with_a_space_and_an_umlaut_counts_and_shows_the_web_ui_of_spark_without_secrets(
    environment: dict[str, str], redis: Redis, warehouse: Warehouse, open_tmp_path: Path
) -> None:
    assert " " in str(open_tmp_path)
    assert not str(open_tmp_path).isascii()
    fill(redis, 50)
    port = any_free_port()
    settings = {
        "LC_ALL": "C",
        "PENSTOCK_SPARK_UI_PORT": str(port),
        **canary_settings(environment, open_tmp_path),
    }
    redis.acl_setuser(
        "canary", True, passwords=[f"+{CANARY}"], keys=["*"], channels=["*"], categories=["+@all"]
    )
    job = KillableJob(open_tmp_path, environment | settings)
    with job.running(QUEUE):
        wait_until(lambda: totals(warehouse)[2][0] == 50, TIMEOUT_S, "the events are counted")
        wait_until(
            lambda: ">queue<" in read_page(port, "/StreamingQuery/"), TIMEOUT_S, "the UI shows the query"
        )
        pages = read_all_pages(port)
    text = "\n".join(pages.values())
    assert {"/environment", "/SQL/execution", "/StreamingQuery/statistics", "/api/v1/applications"} <= {
        urlsplit(path).path.rstrip("/") for path in pages
    }
    assert "spark.hadoop.fs.s3a.secret.key" in text
    clickhouse_password = urlsplit(environment["PENSTOCK_CLICKHOUSE_URL"]).password
    assert clickhouse_password
    for secret in (CANARY, clickhouse_password):
        assert [path for path, page in pages.items() if secret in page] == []


def canary_settings(environment: dict[str, str], home: Path) -> dict[str, str]:
    """Settings with the canary wherever a secret can be."""
    conf = home / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.hadoop.fs.s3a.secret.key {CANARY}\nspark.executorEnv.SERVER redis://user:{CANARY}@host:6379\n"
    )
    redis = urlsplit(environment["PENSTOCK_REDIS_URL"])
    netloc = f"canary:{CANARY}@{redis.netloc.rpartition('@')[2]}"
    return {
        "PENSTOCK_REDIS_URL": urlunsplit(redis._replace(netloc=netloc)),
        "SPARK_CONF_DIR": str(conf),
        "AWS_ACCESS_KEY_ID": CANARY,
        "AWS_SECRET_ACCESS_KEY": CANARY,
    }


def read_page(port: int, path: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=deadline_s(10)) as response:
        return str(response.read().decode())


def read_all_pages(port: int) -> dict[str, str]:
    """Read the pages that the UI links to, one per kind of page, and its REST API."""
    [application] = json.loads(read_page(port, "/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    waiting = ["/jobs/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/api/v1/applications"]
    waiting += [f"{api}/{name}" for name in ("environment", "jobs", "stages", "allexecutors", "storage/rdd")]
    waiting += [f"{api}/sql?details=true&planDescription=true&length=100", f"{api}/stages?details=true"]
    pages: dict[str, str] = {}
    kinds: set[str] = set()
    while waiting:
        path = waiting.pop(0)
        kind = urlsplit(path).path.rstrip("/")
        if kind in kinds and not kind.startswith("/api"):
            continue
        kinds.add(kind)
        pages[path] = read_page(port, path)
        links = re.findall(r"""href=["'](?:http://[^/"']+)?(/[^"'#]*)""", pages[path])
        waiting += [link.replace("&amp;", "&") for link in links if "/static/" not in link]
    return pages


def test_python_processes_import_the_installed_pyspark_not_an_archive(spark: SparkSession) -> None:
    [path] = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert path == pyspark.__file__
