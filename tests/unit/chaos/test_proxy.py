"""A fault proxy forwards data, and cuts, holds back or refuses it on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from chaos.proxy import FaultProxy

from tests.deadlines import deadline_s


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read(100)).upper())
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = FaultProxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.close()
    server.close()
    await server.wait_closed()


class Connection:
    """A connection to the echo server through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, proxy: FaultProxy) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> bytes:
        """Return the next data; nothing when the connection ended."""
        try:
            async with asyncio.timeout(deadline_s(5)):
                return await self._reader.read(100)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._writer.close()


async def test_a_cut_ends_connections_and_allows_new_ones(proxy: FaultProxy) -> None:
    connection = await Connection.open(proxy)
    connection.send(b"one")
    assert await connection.receive() == b"one"
    proxy.cut()
    assert await connection.receive() == b""
    again = await Connection.open(proxy)
    again.send(b"two")
    assert await again.receive() == b"two"
    again.close()


async def test_a_refusing_proxy_ends_new_connections_until_it_heals(proxy: FaultProxy) -> None:
    proxy.refuse()
    connection = await Connection.open(proxy)
    connection.send(b"one")
    assert await connection.receive() == b""
    proxy.heal()
    again = await Connection.open(proxy)
    again.send(b"two")
    assert await again.receive() == b"two"
    again.close()


async def test_dropped_data_arrives_after_the_proxy_heals(proxy: FaultProxy) -> None:
    connection = await Connection.open(proxy)
    connection.send(b"one")
    assert await connection.receive() == b"one"
    proxy.drop()
    connection.send(b"two")
    reading = asyncio.create_task(connection.receive())
    done, _ = await asyncio.wait([reading], timeout=0.2)
    assert not done
    proxy.heal()
    assert await reading == b"two"
    connection.close()


async def test_connections_take_turns_and_pass_over_a_server_that_is_down(proxy: FaultProxy) -> None:
    other = await asyncio.start_server(shout, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]

    async def ask() -> bytes:
        connection = await Connection.open(proxy)
        connection.send(b"one")
        answer = await connection.receive()
        connection.close()
        return answer

    proxy.add_server(port)
    assert {await ask(), await ask()} == {b"one", b"ONE"}
    other.close()
    await other.wait_closed()
    assert [await ask(), await ask()] == [b"one", b"one"]
    proxy.remove_server(port)
    assert await ask() == b"one"


async def test_delayed_data_takes_the_delay_in_each_direction(proxy: FaultProxy) -> None:
    connection = await Connection.open(proxy)
    proxy.delay(0.1)
    started = time.monotonic()
    connection.send(b"one")
    assert await connection.receive() == b"one"
    assert time.monotonic() - started >= 0.2
    connection.close()
