"""What the pipeline says about itself: one JSON document under one Redis key.

Written at least every few seconds while the pipeline runs, idle or not, so an old `at` means it is not
running. Read by status, health and the dashboard, which need neither Spark nor ClickHouse for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

PROGRESS_KEY = "penstock:pipeline:progress"

STOPPED = "stopped"

STALE_AFTER_S = 15.0
"""A pipeline whose last word is older than this is not running, or cannot reach Redis."""


class Progress(TypedDict):
    """Totals over all metrics; `metrics` has the same per metric. Times are seconds since the epoch."""

    at: float
    started_at: float
    state: str
    """`running`, `draining`, `stopped`, or what it waits for, in words."""
    host: str
    pid: int
    """The driver's."""
    query_id: str | None
    batch_id: int
    """The newest batch that is in ClickHouse; -1 before the first since the start."""
    input_rows_per_s: float
    """Entries that entered the streams, per second, since the previous report."""
    processed_rows_per_s: float
    """Entries of the newest batch per second of its duration."""
    batch_ms: float
    lag: dict[str, int | None]
    """Entries not yet counted, per stream; null when Redis cannot tell."""
    freshness: float | None
    """Time of the newest event that is in ClickHouse."""
    rejected: int
    """Events set aside because they could not be read, as long as ClickHouse keeps them: 31 days."""
    lost: int
    """Entries trimmed from a stream before they were read, each of one event or of many, likewise."""
    metrics: dict[str, dict[str, Any]]


def write_progress(client: Redis, progress: Progress) -> None:
    client.set(PROGRESS_KEY, json.dumps(progress, separators=(",", ":")))


def read_progress(redis_url: str) -> dict[str, Any] | None:
    """The pipeline's last report, or None if it never made one. Raises redis.RedisError if Redis is away."""
    with Redis.from_url(redis_url, socket_timeout=2, socket_connect_timeout=2) as client:
        return _decoded(client.get(PROGRESS_KEY))


async def read_progress_async(redis_client: AsyncRedis) -> dict[str, Any] | None:
    """The same through a client that is already open, for the API."""
    return _decoded(await redis_client.get(PROGRESS_KEY))


def is_alive(progress: Mapping[str, Any] | None) -> bool:
    """Whether a pipeline reported lately that it runs."""
    if progress is None or progress["state"] == STOPPED:
        return False
    return time.time() - float(progress["at"]) < STALE_AFTER_S


def _decoded(text: Any) -> dict[str, Any] | None:
    if text is None:
        return None
    document: dict[str, Any] = json.loads(text)
    return document
