"""Lists and lookups for people: whatever they show, the log is read by index and a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable import catalog, consumer_groups, stored_messages
from penstock.durable.dead_letters import dead_letter_queries
from penstock.durable.dead_letters.dead_letter_queries import Filter
from penstock.durable.pool import SESSION
from penstock.durable.stored_messages import Page
from penstock.model import DEFAULT_SCOPE
from tests.integration.databases import new_database
from tests.integration.durable.query_plans import DIRECT, Filled, Watched, fill

PARTITIONS = 300
SEGMENTS = 60
PAGE = 20


@pytest_asyncio.fixture(scope="module")
async def filled(postgres_url: str, template: str) -> AsyncIterator[Filled]:
    """36,000 messages in 18,000 segments, 300 partitions and two chunks."""
    async with new_database(postgres_url, template) as url:
        connection = await asyncpg.connect(url, server_settings=SESSION)
        ids = await fill(connection, partitions=PARTITIONS, segments=SEGMENTS, chunks=2)
        await connection.close()
        yield Filled(url, *ids)


Call = Callable[[Any, Filled], Awaitable[object]]


def listing(**wanted: Any) -> Call:
    async def call(database: Any, filled: Filled) -> object:
        page = Page(filled.queue_id, group_id=filled.group_id, limit=PAGE, **wanted)
        return await stored_messages.messages(database, page)

    return call


async def find_by_key(database: Any, filled: Filled) -> object:
    return await stored_messages.find(database, 7, "7 30 b")


async def find_by_time(database: Any, filled: Filled) -> object:
    now_ms = int(datetime.now(UTC).timestamp() * 1000) - SEGMENTS * 500
    made = f"{now_ms:012x}"
    return await stored_messages.find(database, 7, f"{made[:8]}-{made[8:]}-7000-8000-000000000000") is None


async def states(database: Any, filled: Filled) -> object:
    return await stored_messages.states(database, 7, 30)


async def group_list(database: Any, filled: Filled) -> object:
    return await consumer_groups.groups(database, DEFAULT_SCOPE)


async def lagging(database: Any, filled: Filled) -> object:
    return await consumer_groups.lagging(database, DEFAULT_SCOPE, datetime.now(UTC), limit=PAGE, offset=0)


async def positions(database: Any, filled: Filled) -> object:
    return await consumer_groups.group_partitions(database, filled.group_id, limit=PAGE, offset=0)


async def totals(database: Any, filled: Filled) -> object:
    await catalog.partitions(database, DEFAULT_SCOPE, limit=PAGE)
    await catalog.queue_totals(database, DEFAULT_SCOPE)
    return await catalog.overview(database, DEFAULT_SCOPE)


async def letters(database: Any, filled: Filled) -> object:
    await dead_letter_queries.dead_letters(database, DEFAULT_SCOPE, Filter(), limit=PAGE, offset=0)
    return await dead_letter_queries.total(database, DEFAULT_SCOPE, Filter()) == 0


@pytest.mark.parametrize(
    ("call", "segments_per_chunk"),
    [
        pytest.param(listing(), PAGE, id="newest messages"),
        pytest.param(listing(skip=20_000), PAGE, id="messages in the middle"),
        pytest.param(listing(status="pending"), PAGE, id="pending messages"),
        pytest.param(listing(status="completed", skip=9_999), PAGE, id="completed messages"),
        pytest.param(listing(start=(200, 50)), PAGE, id="messages after a cursor"),
        pytest.param(find_by_key, 0, id="a message by its key"),
        pytest.param(find_by_time, 2 * SEGMENTS, id="a message by its time"),
        pytest.param(states, 0, id="a message's states"),
        pytest.param(group_list, PARTITIONS, id="groups with their lag"),
        pytest.param(lagging, PARTITIONS, id="lagging positions"),
        pytest.param(positions, PAGE, id="a group's positions"),
        pytest.param(totals, 0, id="totals"),
        pytest.param(letters, 0, id="dead letters"),
    ],
)
async def test_a_list_reads_the_log_by_index_and_only_what_it_shows(
    filled: Filled, call: Call, segments_per_chunk: int
) -> None:
    watched = await Watched.connect(filled.url)
    try:
        for _ in range(7):  # until plans are settled
            watched.take()
            assert await call(watched, filled)
        scans = [s for s in watched.take() if s.table.startswith(("log_", "message_keys_"))]
    finally:
        await watched.connection.close()
    assert [scan for scan in scans if scan.how not in DIRECT] == []
    read = max((scan.rows for scan in scans if scan.table.startswith("log_")), default=0)
    assert read <= segments_per_chunk + 2, [(s.table, s.rows, s.statement[:80]) for s in scans]
