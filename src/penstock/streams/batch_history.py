"""The last batches of each metric, with their durations: one Redis list per metric, the newest first.

The pipeline adds each batch when it has ended. The lists survive its restarts and hold a fixed number of
batches. They are for people who watch the pipeline; it does not read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TypedDict

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

MAX_BATCHES = 120
"""Batches per metric that the lists hold."""


class BatchRecord(TypedDict):
    """One batch. The four durations are parts of `duration_ms`, the time from its trigger to its end.

    `plan_ms` and `checkpoint_ms` are None if Spark does not remember them any more.
    """

    batch_id: int
    started_at: float
    """Seconds since the epoch."""
    duration_ms: float
    plan_ms: float | None
    """Spark asks the source for the end of the batch, and plans the query."""
    read_ms: float
    """Spark's tasks read the streams and fold the events into rows."""
    insert_ms: float
    """ClickHouse takes the rows, and the consumer group moves."""
    checkpoint_ms: float | None
    """Spark writes the checkpoint, before and after the batch."""
    entries: int
    """Stream entries."""
    rows: int
    """Rows inserted."""


def batch_history_key(metric: str) -> str:
    return f"penstock:pipeline:batches:{metric}"


def add_batches(client: Redis, metric: str, batches: Sequence[BatchRecord]) -> None:
    """Add batches, the oldest first, and drop the oldest ones of the list."""
    if not batches:
        return
    with client.pipeline(transaction=True) as transaction:
        transaction.lpush(
            batch_history_key(metric), *(json.dumps(batch, separators=(",", ":")) for batch in batches)
        )
        transaction.ltrim(batch_history_key(metric), 0, MAX_BATCHES - 1)
        transaction.execute()


async def read_batches_async(client: AsyncRedis, metrics: Iterable[str]) -> dict[str, list[BatchRecord]]:
    """Return the batches of each metric, the oldest first, in one round trip."""
    metrics = list(metrics)
    async with client.pipeline(transaction=False) as calls:
        for metric in metrics:
            calls.lrange(batch_history_key(metric), 0, MAX_BATCHES - 1)
        replies = await calls.execute()
    return {
        metric: [json.loads(text) for text in reversed(texts)]
        for metric, texts in zip(metrics, replies, strict=True)
    }
