"""Test steps that rotate and reclaim chunks."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

from penstock.durable.cluster_lock import ClusterLock
from penstock.durable.pool import Database
from penstock.durable.storage import chunks, retention
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async

HOUR = timedelta(hours=1)


@asynccontextmanager
async def upkeep(database: Database) -> AsyncIterator[ClusterLock]:
    session = await ClusterLock.acquire(database.url)
    assert session is not None
    try:
        yield session
    finally:
        await session.close()


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(database.url, server_settings={"search_path": "penstock"})
    try:
        yield connection
    finally:
        await connection.close()


async def rotate(session: ClusterLock) -> int:
    """Open a chunk, even if the open one is small."""

    async def opened() -> int:
        return await chunks.rotate(session, 1, HOUR) or 0

    return await wait_until_async(opened, 10, "a chunk is opened")


async def reclaim(session: ClusterLock, *dropped: int) -> None:
    """Reclaim until these chunks are dropped."""

    async def are_dropped() -> bool:
        await chunks.reclaim(session, chunks.time_budget(5))
        return not {c.chunk for c in await chunks.list_chunks(session)} & set(dropped)

    await wait_until_async(are_dropped, 10, f"chunks {dropped} are dropped")


async def stages(session: ClusterLock) -> dict[int, str]:
    return {c.chunk: c.stage for c in await chunks.list_chunks(session)}


def incompressible_payloads(count: int) -> list[str]:
    """Payloads of 2 kB that do not compress."""
    return [secrets.token_urlsafe(1500) for _ in range(count)]


async def drop_all_messages(queue: QueueUnderTest) -> None:
    """Let every message exceed its retention."""
    await queue.configure(retention_enabled=True, retention_ms=1)
    queue.later(10_000)
    await retention.apply_retention(queue.database, 0, queue.now)
