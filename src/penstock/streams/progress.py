"""The pipeline's report about itself: one JSON document under one Redis key.

The pipeline writes it every few seconds, also while it is idle, so an old `at` means that it does not run.
Status, health and the dashboard read it, and need neither Spark nor ClickHouse for that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from penstock.redis_clients import connect_redis

PROGRESS_KEY = "penstock:pipeline:progress"

STARTING, RUNNING, FAILING = "starting", "running", "failing"
DRAINING, STOPPED = "draining", "stopped"

STALE_AFTER_S = 15.0
"""A pipeline whose last report is older than this does not run, or cannot reach Redis."""

ProgressDocument = dict[str, Any]
"""A report as read from Redis: the fields of `Progress`, or fewer if another version wrote it."""


class StageStatus(TypedDict):
    """The tasks of a stage that Spark executes."""

    stage: int
    tasks: int
    active: int
    completed: int
    failed: int


class ExecutorStatus(TypedDict):
    """A process that executes tasks, and the tasks it has executed since it started."""

    id: str
    address: str
    cores: int
    active_tasks: int
    completed_tasks: int
    failed_tasks: int
    task_s: float
    """Time of all its tasks."""
    gc_s: float


class SparkStatus(TypedDict):
    """What Spark executes at the moment."""

    master: str
    cores: int
    heap_bytes: int
    """Heap of the driver in use."""
    heap_limit_bytes: int
    stages: list[StageStatus]
    executors: list[ExecutorStatus]


class Progress(TypedDict):
    """Totals over all metrics; `metrics` has the same per metric. Times are seconds since the epoch."""

    at: float
    started_at: float
    state: str
    """`starting` until every query reads its streams, `running`, `failing` while a query has failed and waits
    for its next start, `draining`, `stopped`, or a text that says what the pipeline waits for."""
    host: str
    pid: int
    """Process id of the driver."""
    query_id: str | None
    batch_id: int
    """The newest batch that is in ClickHouse; -1 before the first batch since the start."""
    input_rows_per_s: float
    """Entries that entered the streams per second, since the previous report."""
    processed_rows_per_s: float
    """Entries of the newest batch per second of its duration."""
    batch_ms: float
    lag: dict[str, int | None]
    """Entries not counted yet, per stream; null if Redis does not know."""
    freshness: float | None
    """Time of the newest event that is in ClickHouse."""
    rejected: int
    """Rejected events that ClickHouse still holds; it keeps them for 31 days."""
    lost: int
    """Entries trimmed from a stream before they were read, in the same 31 days.

    An entry holds one or many events.
    """
    metrics: dict[str, dict[str, object]]
    """Per metric also its query: `state` (`starting`, `running`, `failed`, or what it waits for), `failures`
    and `restarts` since the pipeline started, and `last_failure`, a text or null."""
    spark: SparkStatus | None
    """None before Spark has started and after it has stopped."""


def write_progress(client: Redis, progress: Progress) -> None:
    client.set(PROGRESS_KEY, json.dumps(progress, separators=(",", ":")))


def read_progress(redis_url: str) -> ProgressDocument | None:
    """Return the pipeline's last report, or None if there is none. Raises redis.RedisError."""
    with connect_redis(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
        return _decode(client.get(PROGRESS_KEY))


async def read_progress_async(redis_client: AsyncRedis) -> ProgressDocument | None:
    """Return the same through an open client, for the API."""
    return _decode(await redis_client.get(PROGRESS_KEY))


def is_pipeline_running(progress: Mapping[str, Any] | None) -> bool:
    """Return whether a pipeline process reported lately that it runs. Its queries may be failing."""
    if progress is None or progress["state"] == STOPPED:
        return False
    return time.time() - float(progress["at"]) < STALE_AFTER_S


def find_problem(progress: Mapping[str, Any] | None) -> str | None:
    """Return why the pipeline does not read its streams, or None if all its queries do."""
    if progress is None:
        return "The pipeline has not reported yet. Start it with `penstock up`."
    age_s = time.time() - float(progress["at"])
    if age_s > STALE_AFTER_S:
        return f"The last report of the pipeline is {age_s:.0f} s old. Check its log."
    if progress["state"] == STOPPED:
        return "The pipeline has stopped. Start it with `penstock up`."
    if progress["state"] == STARTING:
        return "The pipeline is starting and does not read its streams yet."
    if progress["state"] != FAILING:
        return None
    failed = {name: report for name, report in progress["metrics"].items() if report["state"] == "failed"}
    return " ".join(
        f"The {name} query has failed {report['failures']} times and will be started again: "
        f"{str(report['last_failure']).rstrip('.')}."
        for name, report in failed.items()
    )


def _decode(text: bytes | str | None) -> ProgressDocument | None:
    if text is None:
        return None
    document: ProgressDocument = json.loads(text)
    return document
