"""Retention in a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest_asyncio

from penstock.config import Settings
from penstock.durable import log
from penstock.durable.log import PartitionName, Segment
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s


@pytest_asyncio.fixture
async def settings(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path,
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        maintenance_s=0.1,
    )


async def test_a_parked_pop_gets_the_message_after_those_dropped_by_retention(
    client: httpx.AsyncClient, database: Database, wait_for_parked_pops: Callable[[int], Awaitable[None]]
) -> None:
    """A lease on messages past their retention time no longer blocks other consumers."""
    name = PartitionName("orders", "Default")
    ids = (await log.ensure_partitions(database, DEFAULT_SCOPE, [name]))[name]
    [row] = await database.fetch("SELECT now() - interval '1 hour' AS long_ago")
    for payload, push_time in ((b'"old"', row["long_ago"]), (b'"new"', row["long_ago"] + timedelta(hours=1))):
        segment = Segment(ids.partition_id, [str(new_id())], [None], [None], [payload])
        await log.push(database, [segment], push_time)
    leased = (await client.get("/api/v1/pop/queue/orders")).json()
    assert [m["data"] for m in leased["messages"]] == ["old"]
    waiting = asyncio.create_task(
        client.get("/api/v1/pop/queue/orders?wait=true&timeout=20000", timeout=deadline_s(30))
    )
    await wait_for_parked_pops(1)
    await database.fetch("UPDATE queues SET retention_enabled = true, retention_ms = 600000")
    assert [m["data"] for m in (await waiting).json()["messages"]] == ["new"]
