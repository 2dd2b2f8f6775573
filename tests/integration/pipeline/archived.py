"""Pipelines with an archive on the tests' session, and what the archive holds."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from redis import Redis

from penstock.config import Settings
from penstock.definitions import DEFINITIONS, QUEUE
from penstock.pipeline.checkpoint import checkpoint_of
from penstock.pipeline.job import Pipeline
from penstock.streams.goal import Goal


def drained(spark: SparkSession, settings: Settings, redis: Redis) -> None:
    """Count what is in the streams, as `penstock pipeline drain` does."""
    goal = Goal.of(redis, QUEUE.stream_keys)
    pipeline = Pipeline(spark, settings, checkpoint_of(settings), DEFINITIONS, threading.Event())
    assert pipeline.drain(goal, lambda left: None)


def archived(settings: Settings) -> list[dict[str, Any]]:
    """Every row of the archive, read as any program would, in the order of the streams."""
    rows = ds.dataset(f"{settings.archive}/queue", format="parquet", partitioning="hive").to_table()
    return sorted(rows.to_pylist(), key=lambda row: (row["id_ms"], row["id_sequence"]))
