"""Sums of the minute rows that broker processes record of queues."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.services import Services
from penstock.broker.durable_store import QueueBucket, QueueWindow, ThroughputBucket
from penstock.model import Scope


@dataclass(slots=True)
class QueueSums:
    """What happened to the messages of one queue in one bucket, over its groups; or of several
    queues."""

    push_messages: int = 0
    pop_messages: int = 0
    completed: int = 0
    failed: int = 0
    released: int = 0
    dead_letters: int = 0
    expired: int = 0
    lag_count: int = 0
    lag_sum_ms: int = 0
    lag_max_ms: int = 0

    @property
    def acked(self) -> int:
        """Messages that consumers acked or nacked, with any outcome, and those declared dead."""
        return self.completed + self.failed + self.released + self.dead_letters

    def add(self, bucket: QueueBucket) -> None:
        self.push_messages += bucket.push_messages
        self.pop_messages += bucket.pop_messages
        self.completed += bucket.completed
        self.failed += bucket.failed
        self.released += bucket.released
        self.dead_letters += bucket.dead_letters
        self.expired += bucket.expired
        self.lag_count += bucket.lag_count
        self.lag_sum_ms += bucket.lag_sum_ms
        self.lag_max_ms = max(self.lag_max_ms, bucket.lag_max_ms)


@dataclass(frozen=True, slots=True)
class EnvironmentBucket:
    """What happened to the messages of an environment in a bucket that brokers cover."""

    covered: ThroughputBucket
    sums: QueueSums


async def read_environment_buckets(
    services: Services, environment: Scope, window: QueueWindow
) -> list[EnvironmentBucket]:
    """Sum the minute rows of an environment over its queues, per covered bucket."""
    minutes = services.broker.store.worker_minutes
    rows = await minutes.read_queues(environment, window)
    covered = await minutes.read_throughput(window.start, window.end, window.width)
    buckets = {bucket.bucket_at: EnvironmentBucket(bucket, QueueSums()) for bucket in covered}
    for row in rows:
        if row.bucket_at in buckets:
            buckets[row.bucket_at].sums.add(row)
    return list(buckets.values())
