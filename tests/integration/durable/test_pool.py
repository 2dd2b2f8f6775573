"""The connection pool: which connection a call gets, and that closed pools open no connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.durable.pool import MAX_HOT_CONNECTIONS, Database, _is_open
from penstock.errors import DatabaseFull, DatabaseUnavailable, SchemaOutdated
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

FULL_DISK = """DO $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$"""
PID = "SELECT pg_backend_pid() AS pid"


@pytest_asyncio.fixture
async def small_pool(database_url: str) -> AsyncIterator[Database]:
    """A pool of two connections."""
    database = Database(database_url, size=2)
    yield database
    await database.close()


async def test_a_call_after_close_is_refused(database_url: str) -> None:
    database = Database(database_url)
    await database.ping()
    await database.close()
    with pytest.raises(DatabaseUnavailable, match="stopping"):
        await database.ping()
    assert database.connections == (0, 0)
    await database.close()


async def test_a_missing_function_is_reported_as_an_outdated_schema(database_url: str) -> None:
    database = Database(database_url)
    with pytest.raises(SchemaOutdated, match=r"penstock migrate.*missing_v1") as caught:
        await database.fetch("SELECT * FROM missing_v1($1)", 1)
    assert caught.value.status == 503
    await database.ping()
    await database.close()


async def pid(database: Database) -> int:
    [row] = await database.fetch(PID)
    backend_pid: int = row["pid"]
    return backend_pid


async def test_a_full_disk_is_reported_as_such(small_pool: Database) -> None:
    with pytest.raises(DatabaseFull, match=r"No space left on device.*Free disk space") as caught:
        await small_pool.fetch(FULL_DISK)
    assert (caught.value.status, caught.value.code) == (503, "database_full")


async def test_sequential_calls_use_one_connection(small_pool: Database) -> None:
    assert len({await pid(small_pool) for _ in range(5)}) == 1
    assert small_pool.connections == (1, 0)


async def test_calls_wait_for_a_free_connection(small_pool: Database) -> None:
    async with asyncio.timeout(deadline_s(20)):
        pids = await asyncio.gather(*(pid(small_pool) for _ in range(50)))
    assert len(set(pids)) == 2
    assert (small_pool.waiting, small_pool.connections) == (0, (2, 0))


async def test_the_number_of_hot_connections_is_limited(database_url: str) -> None:
    database = Database(database_url, size=MAX_HOT_CONNECTIONS + 3)
    try:
        await asyncio.gather(
            *(database.fetch("SELECT pg_sleep(0.1)") for _ in range(MAX_HOT_CONNECTIONS + 3))
        )
        assert len(database._hot_connections) == MAX_HOT_CONNECTIONS
        assert database.connections == (MAX_HOT_CONNECTIONS + 3, 0)
    finally:
        await database.close()


async def test_a_terminated_connection_is_replaced(small_pool: Database, database: Database) -> None:
    first = await pid(small_pool)
    await database.fetch("SELECT pg_terminate_backend($1)", first)

    async def is_closed() -> bool:
        return not _is_open(small_pool._hot_connections[0])

    await wait_until_async(is_closed, 10, "the connection is closed")
    assert await pid(small_pool) != first
    assert small_pool.connections[1] == 0


async def test_a_cancelled_call_returns_its_connection_to_the_pool(small_pool: Database) -> None:
    first = await pid(small_pool)
    call = asyncio.create_task(small_pool.fetch("SELECT pg_sleep(60)"))

    async def is_running() -> bool:
        return small_pool.connections == (1, 1)

    await wait_until_async(is_running, 10, "the connection is busy")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert small_pool._hot_connections == []
    async with asyncio.timeout(deadline_s(10)):
        assert await pid(small_pool) == first, "its query was cancelled"


async def test_a_failed_statement_keeps_its_connection(small_pool: Database) -> None:
    first = await pid(small_pool)
    with pytest.raises(Exception, match="missing_column"):
        await small_pool.fetch("SELECT missing_column")
    assert await pid(small_pool) == first


async def test_both_sides_notice_a_host_that_is_cut_off(small_pool: Database) -> None:
    """The client gives up first: when the server frees the locks of a session, its client knows."""
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    server = {name: (await small_pool.fetch(f"SHOW {name}"))[0][0] for name in names}
    assert server == {
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "10000",
    }
    async with small_pool.connection() as connection:
        client = connection._con._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5_000
