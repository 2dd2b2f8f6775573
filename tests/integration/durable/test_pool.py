"""The connections of a broker: which one an operation gets, and nobody opens what nobody would close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.durable.pool import MAX_HOT_CONNECTIONS, Database, _is_open
from penstock.errors import DatabaseUnavailable, SchemaOutdated
from tests.waiting import wait_until_async

PID = "SELECT pg_backend_pid() AS pid"


@pytest_asyncio.fixture
async def small(database_url: str) -> AsyncIterator[Database]:
    """With room for two connections."""
    database = Database(database_url, size=2)
    yield database
    await database.close()


async def test_who_comes_after_the_connections_were_closed_is_refused(database_url: str) -> None:
    database = Database(database_url)
    await database.ping()
    await database.close()
    with pytest.raises(DatabaseUnavailable, match="stopping"):
        await database.ping()
    assert database.connections == (0, 0)
    await database.close()


async def test_a_database_that_was_not_migrated_is_told(database_url: str) -> None:
    database = Database(database_url)
    with pytest.raises(SchemaOutdated, match=r"penstock migrate.*not_there_v1") as told:
        await database.fetch("SELECT * FROM not_there_v1($1)", 1)
    assert told.value.status == 503
    await database.ping()
    await database.close()


async def pid(database: Database) -> int:
    [row] = await database.fetch(PID)
    found: int = row["pid"]
    return found


async def test_calls_one_after_another_use_one_connection_which_is_free_in_between(small: Database) -> None:
    assert len({await pid(small) for _ in range(5)}) == 1
    assert small.connections == (1, 0)


async def test_those_who_find_all_connections_busy_get_one_when_it_is_free(small: Database) -> None:
    async with asyncio.timeout(20):
        pids = await asyncio.gather(*(pid(small) for _ in range(50)))
    assert len(set(pids)) == 2
    assert (small.waiting, small.connections) == (0, (2, 0))


async def test_only_so_many_stay_at_hand(database_url: str) -> None:
    database = Database(database_url, size=MAX_HOT_CONNECTIONS + 3)
    try:
        await asyncio.gather(
            *(database.fetch("SELECT pg_sleep(0.1)") for _ in range(MAX_HOT_CONNECTIONS + 3))
        )
        assert len(database._hot_connections) == MAX_HOT_CONNECTIONS
        assert database.connections == (MAX_HOT_CONNECTIONS + 3, 0)
    finally:
        await database.close()


async def test_a_connection_that_ended_meanwhile_is_replaced(small: Database, database: Database) -> None:
    first = await pid(small)
    await database.fetch("SELECT pg_terminate_backend($1)", first)

    async def noticed() -> bool:
        return not _is_open(small._hot_connections[0])

    await wait_until_async(noticed, 10, "the connection is closed")
    assert await pid(small) != first
    assert small.connections[1] == 0


async def test_a_call_that_is_cancelled_leaves_its_connection_to_the_pool(small: Database) -> None:
    first = await pid(small)
    call = asyncio.create_task(small.fetch("SELECT pg_sleep(60)"))

    async def under_way() -> bool:
        return small.connections == (1, 1)

    await wait_until_async(under_way, 10, "the connection is busy")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert small._hot_connections == []
    async with asyncio.timeout(10):
        assert await pid(small) == first, "its query was ended"


async def test_a_refused_statement_does_not_cost_the_connection(small: Database) -> None:
    first = await pid(small)
    with pytest.raises(Exception, match="nothing_like_this"):
        await small.fetch("SELECT nothing_like_this")
    assert await pid(small) == first
