"""Minute rows: the measurements that broker processes take of themselves. Nothing here reads messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import msgspec

from penstock.durable.pool import Database, Session, fetch_all, fetch_value
from penstock.model import Scope

MinuteRow = Mapping[str, object]
"""A row to write: column names and values."""

ROWS_PER_PRUNE = 5_000
DIGESTS_PER_PAGE = 500

DigestT = TypeVar("DigestT")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerActivity:
    """What broker processes did in one bucket that at least one of them covers."""

    bucket_at: datetime
    workers: int
    covered_s: float
    push_requests: int
    push_messages: int
    pop_requests: int
    pop_messages: int
    ack_requests: int
    ack_messages: int
    transaction_requests: int
    transaction_messages: int
    database_errors: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBucket(BrokerActivity):
    """A row of `get_throughput`: all brokers together."""

    push_per_s: float | None
    pop_per_s: float | None
    ack_per_s: float | None
    transactions_per_s: float | None
    lag_count: int
    lag_sum_ms: int
    avg_lag_ms: float | None
    max_lag_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealthBucket(BrokerActivity):
    """A row of `worker_health_v1`: all brokers together, or one process.

    `hostname`, `worker`, `pid` and `started_at` are None in a row of all brokers.
    """

    hostname: str | None
    worker: int | None
    pid: int | None
    started_at: datetime | None
    process_s: float
    samples: int
    cpu_s: float
    late_count: int
    late_sum_ms: float
    late_max_ms: float
    busy_connections_sum: int
    busy_connections_max: int
    free_connections_sum: int
    free_connections_min: int
    connection_waiters_sum: int
    connection_waiters_max: int
    pending_requests_sum: int
    pending_requests_max: int
    parked_pops_sum: int
    parked_pops_max: int
    spilled_sum: int
    spilled_max: int
    resident_bytes_sum: int
    resident_bytes_max: int
    pending: str | None
    """JSON: kind of batch to sum and maximum of waiting requests."""


class QueueWindow(NamedTuple):
    """The minute rows of queues to read: a time range in buckets, and one queue or group unless None."""

    start: datetime
    end: datetime
    width: timedelta
    queue: str | None = None
    group: str | None = None


class QueueBucket(NamedTuple):
    """A row of `queue_minute_metrics_v1`: what happened to the messages of a queue and group in one
    bucket."""

    bucket_at: datetime
    queue: str
    group_name: str
    push_messages: int
    pop_messages: int
    completed: int
    failed: int
    released: int
    dead_letters: int
    expired: int
    lag_count: int
    lag_sum_ms: int
    lag_max_ms: int


class LagDigest(NamedTuple):
    """A T-Digest of lag over all queues of one process and minute."""

    bucket_at: datetime
    lag_digest: bytes


class QueueLagDigest(NamedTuple):
    """A T-Digest of the lag of one queue and group."""

    bucket_at: datetime
    queue: str
    group_name: str
    lag_digest: bytes


class WorkerMinutes:
    """Writes and reads minute rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, workers: Sequence[MinuteRow], queues: Sequence[MinuteRow]) -> None:
        """Replace earlier rows of the same process and minute, all or none; safe to repeat after an unknown
        outcome. A failure here does not count as a database error of the broker."""
        async with self._database.connection(count_errors=False) as connection:
            await connection.fetch(
                "SELECT record_minute_metrics_v1($1, $2)",
                msgspec.json.encode(workers).decode(),
                msgspec.json.encode(queues).decode(),
            )

    async def read_throughput(
        self, start: datetime, end: datetime, width: timedelta
    ) -> list[ThroughputBucket]:
        """Return what all brokers did, per covered bucket."""
        return await fetch_all(
            self._database, ThroughputBucket, "SELECT * FROM get_throughput($1, $2, $3)", start, end, width
        )

    async def read_health(
        self,
        start: datetime,
        end: datetime,
        width: timedelta,
        *,
        per_process: bool = False,
        hostname: str | None = None,
        worker: int | None = None,
    ) -> list[WorkerHealthBucket]:
        """Return the state of brokers, per covered bucket and, with `per_process`, per process."""
        return await fetch_all(
            self._database,
            WorkerHealthBucket,
            "SELECT * FROM worker_health_v1($1, $2, $3, $4, $5, $6)",
            start,
            end,
            width,
            per_process,
            hostname,
            worker,
        )

    async def read_queues(self, scope: Scope, window: QueueWindow) -> list[QueueBucket]:
        """Return what happened to the messages of queues, per bucket, queue and group."""
        return await fetch_all(
            self._database,
            QueueBucket,
            "SELECT * FROM queue_minute_metrics_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            *window,
        )

    def lag_digests(self, start: datetime, end: datetime, width: timedelta) -> AsyncIterator[list[LagDigest]]:
        """Iterate over the lag digests of all queues by bucket, in pages of bounded size."""
        return self._pages(LagDigest, "SELECT * FROM lag_digests_v1($1, $2, $3)", start, end, width)

    def queue_lag_digests(self, scope: Scope, window: QueueWindow) -> AsyncIterator[list[QueueLagDigest]]:
        """Iterate over the lag digests by bucket, queue and group, in pages of bounded size."""
        return self._pages(
            QueueLagDigest,
            "SELECT * FROM queue_lag_digests_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            *window,
        )

    async def _pages(
        self, row_type: Callable[..., DigestT], query: str, *args: object
    ) -> AsyncIterator[list[DigestT]]:
        async with self._database.connection() as connection, connection.transaction(readonly=True):
            cursor = await connection.cursor(query, *args)
            while rows := await cursor.fetch(DIGESTS_PER_PAGE):
                yield [row_type(**row) for row in rows]


async def prune_minutes(session: Session, before: datetime) -> bool:
    """Delete one batch of minute rows from before a time; whether there may be more."""
    pruned = await fetch_value(session, int, "SELECT prune_minute_metrics_v1($1, $2)", before, ROWS_PER_PRUNE)
    return pruned >= ROWS_PER_PRUNE
