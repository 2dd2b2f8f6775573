"""Fixtures of the pipeline tests: one Spark session, and a Redis and ClickHouse database per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.pipeline.session import build_session
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.schema_migrations import migrate
from tests.integration.pipeline.running_pipeline import StartPipeline, pipeline_starter


@pytest.fixture(scope="session")
def spark(java_home: str, server_home: Path) -> Iterator[SparkSession]:
    os.environ["JAVA_HOME"] = java_home
    session = build_session("local[1]", server_home / "spark", name="tests")
    yield session
    session.stop()


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> StartPipeline:
    return pipeline_starter(spark, tmp_path / "checkpoint")


@pytest.fixture
def stream_url(redis_url: str) -> str:
    """The Redis database with the streams."""
    return redis_url


@pytest.fixture
def redis(stream_url: str) -> Iterator[Redis]:
    with Redis.from_url(stream_url) as client:
        yield client


@pytest.fixture
def warehouse_url(clickhouse_url: str) -> Iterator[str]:
    """A migrated ClickHouse database."""
    url = urlunsplit(urlsplit(clickhouse_url)._replace(path=f"/pipeline_{uuid4().hex[:12]}"))
    migrate(url)
    yield url
    server = connect(clickhouse_url)
    server.command(f"DROP DATABASE {urlsplit(url).path[1:]}")
    server.close()


@pytest.fixture
def warehouse(warehouse_url: str) -> Iterator[Warehouse]:
    connected = connect(warehouse_url)
    yield connected
    connected.close()


@pytest.fixture
def archive_settings(stream_url: str, warehouse_url: str, tmp_path: Path) -> Settings:
    """Settings of a pipeline with an archive."""
    return Settings(
        home=tmp_path,
        redis_url=stream_url,
        clickhouse_url=warehouse_url,
        archive=str(tmp_path / "archive"),
        trigger_ms=200,
    )
