"""Lists and lookups read the log by index and one page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from penstock.durable.catalog import QueueCatalog
from penstock.durable.consumer_groups import ConsumerGroups
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.pool import SESSION
from penstock.durable.stored_messages import MessageQuery, StoredMessages
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


def list_messages(**filters: Any) -> Call:
    async def call(database: Any, filled: Filled) -> object:
        page = MessageQuery({filled.queue_id: filled.group_id}, limit=PAGE, **filters)
        return await StoredMessages(database).list_messages(page)

    return call


async def find_by_key(database: Any, filled: Filled) -> object:
    return await StoredMessages(database).find_offset(7, "7 30 b")


async def find_by_time(database: Any, filled: Filled) -> object:
    now_ms = int(datetime.now(UTC).timestamp() * 1000) - SEGMENTS * 500
    made = f"{now_ms:012x}"
    return (
        await StoredMessages(database).find_offset(7, f"{made[:8]}-{made[8:]}-7000-8000-000000000000") is None
    )


async def states(database: Any, filled: Filled) -> object:
    return await StoredMessages(database).list_states(7, 30)


async def group_list(database: Any, filled: Filled) -> object:
    return await ConsumerGroups(database).list_groups(DEFAULT_SCOPE)


async def lagging(database: Any, filled: Filled) -> object:
    return await ConsumerGroups(database).list_lagging(DEFAULT_SCOPE, datetime.now(UTC), limit=PAGE, offset=0)


async def positions(database: Any, filled: Filled) -> object:
    return await ConsumerGroups(database).list_positions(filled.group_id, limit=PAGE, offset=0)


async def totals(database: Any, filled: Filled) -> object:
    await QueueCatalog(database).list_partitions(DEFAULT_SCOPE, limit=PAGE)
    await QueueCatalog(database).list_holdings(DEFAULT_SCOPE)
    return await QueueCatalog(database).sum_environment(DEFAULT_SCOPE)


async def dead_letters(database: Any, filled: Filled) -> object:
    await DeadLetterStore(database).read_page(DEFAULT_SCOPE, DeadLetterFilter(), limit=PAGE, offset=0)
    return await DeadLetterStore(database).count(DEFAULT_SCOPE, DeadLetterFilter()) == 0


@pytest.mark.parametrize(
    ("call", "segments_per_chunk"),
    [
        pytest.param(list_messages(), PAGE, id="newest messages"),
        pytest.param(list_messages(skip=20_000), PAGE, id="messages in the middle"),
        pytest.param(list_messages(status="pending"), PAGE, id="pending messages"),
        pytest.param(list_messages(status="completed", skip=9_999), PAGE, id="completed messages"),
        pytest.param(list_messages(start=(200, 50)), PAGE, id="messages after a cursor"),
        pytest.param(find_by_key, 0, id="a message by its key"),
        pytest.param(find_by_time, 2 * SEGMENTS, id="a message by its time"),
        pytest.param(states, 0, id="a message's states"),
        pytest.param(group_list, PARTITIONS, id="groups with their lag"),
        pytest.param(lagging, PARTITIONS, id="lagging positions"),
        pytest.param(positions, PAGE, id="a group's positions"),
        pytest.param(totals, 32, id="totals"),
        pytest.param(dead_letters, 0, id="dead letters"),
    ],
)
async def test_a_list_reads_the_log_by_index_and_one_page_only(
    filled: Filled, call: Call, segments_per_chunk: int
) -> None:
    watched = await Watched.connect(filled.url)
    try:
        for _ in range(7):  # until plans are cached
            watched.take()
            assert await call(watched, filled)
        scans = [s for s in watched.take() if s.table.startswith(("log_", "message_keys_"))]
    finally:
        await watched.connection.close()
    assert [scan for scan in scans if scan.scan_type not in DIRECT] == []
    read = max((scan.rows for scan in scans if scan.table.startswith("log_")), default=0)
    assert read <= segments_per_chunk + 2, [(s.table, s.rows, s.statement[:80]) for s in scans]
