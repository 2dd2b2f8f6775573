"""What broker processes measure of themselves: minute rows written and read. Nothing here looks at
messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.durable.maintenance_lock import Session
from penstock.durable.pool import Database
from penstock.model import Scope

Row = dict[str, Any]

ROWS_PER_STEP = 5_000
DIGESTS_AT_ONCE = 500


async def write(database: Database, workers: Sequence[Row], queues: Sequence[Row]) -> None:
    """Put rows in place of earlier ones of the same process and minute: all of them or none, and again if the
    outcome is not known. What goes wrong here is no database error of the broker's."""
    async with database.connection(counted=False) as connection:
        await connection.fetch(
            "SELECT record_minutes_v1($1, $2)",
            msgspec.json.encode(workers).decode(),
            msgspec.json.encode(queues).decode(),
        )


async def throughput(database: Database, start: datetime, end: datetime, bucket: timedelta) -> list[Any]:
    """What all brokers did, per bucket that is covered."""
    return await database.fetch("SELECT * FROM get_throughput($1, $2, $3)", start, end, bucket)


async def health(
    database: Database,
    start: datetime,
    end: datetime,
    bucket: timedelta,
    *,
    each: bool = False,
    hostname: str | None = None,
    worker: int | None = None,
) -> list[Any]:
    """How brokers were, per bucket that is covered; with `each`, per process too."""
    return await database.fetch(
        "SELECT * FROM worker_health_v1($1, $2, $3, $4, $5, $6)", start, end, bucket, each, hostname, worker
    )


async def queue_minutes(
    database: Database,
    scope: Scope,
    start: datetime,
    end: datetime,
    bucket: timedelta,
    queue: str | None,
    group: str | None,
) -> list[Any]:
    """What happened to the messages of queues, per bucket, queue and group."""
    return await database.fetch(
        "SELECT * FROM queue_minutes_v1($1, $2, $3, $4, $5, $6, $7, $8)",
        scope.organization,
        scope.project,
        scope.environment,
        start,
        end,
        bucket,
        queue,
        group,
    )


async def lag_digests(
    database: Database, start: datetime, end: datetime, bucket: timedelta
) -> AsyncIterator[list[Any]]:
    """The digests of lag over all queues, by bucket, a bounded number of rows at a time."""
    query = """SELECT date_bin($3, bucket_at, timestamptz 'epoch') AS bucket_at, lag_digest
               FROM worker_metrics
               WHERE bucket_at >= date_bin($3, $1, timestamptz 'epoch') AND bucket_at < $2
                 AND lag_digest IS NOT NULL"""
    async for rows in _paged(database, query, start, end, bucket):
        yield rows


async def queue_digests(
    database: Database,
    scope: Scope,
    start: datetime,
    end: datetime,
    bucket: timedelta,
    queue: str | None,
    group: str | None,
) -> AsyncIterator[list[Any]]:
    """The digests of lag by bucket, queue and group, a bounded number of rows at a time."""
    query = """SELECT date_bin($6, bucket_at, timestamptz 'epoch') AS bucket_at, queue, group_name, lag_digest
               FROM queue_minute_rows_v1($1, $2, $3, date_bin($6, $4, timestamptz 'epoch'), $5, $7, $8)
               WHERE lag_digest IS NOT NULL"""
    arguments = (scope.organization, scope.project, scope.environment, start, end, bucket, queue, group)
    async for rows in _paged(database, query, *arguments):
        yield rows


async def prune(session: Session, before: datetime) -> bool:
    """One step of forgetting old minutes; whether there may be more."""
    row = await session.fetchrow("SELECT prune_minutes_v1($1, $2) AS pruned", before, ROWS_PER_STEP)
    return bool(row["pruned"] >= ROWS_PER_STEP)


async def _paged(database: Database, query: str, *arguments: Any) -> AsyncIterator[list[Any]]:
    async with database.connection() as connection, connection.transaction(readonly=True):
        cursor = await connection.cursor(query, *arguments)
        while rows := await cursor.fetch(DIGESTS_AT_ONCE):
            yield rows
