"""A real broker process and clients that hang up: nothing waits for them, and they keep nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.process import Child
from penstock.embedded.supervision.service_components import BrokerService
from tests.integration.broker.brokers import NOBODY
from tests.waiting import wait_until_async


@dataclass(frozen=True)
class Server:
    url: str
    child: Child


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A broker process; of all its servers only PostgreSQL is there."""
    settings = Settings(
        home=tmp_path,
        load_management=False,
        port=any_free_port(),
        postgres_url=database_url,
        redis_url=NOBODY,
        clickhouse_url="http://127.0.0.1:1",
        lease_ms=600_000,
    )
    broker = BrokerService(settings, build_environment(settings))
    with running(broker) as child:
        yield Server(broker.address, child)


class Client:
    """One connection that asks and may hang up before it is answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def ask(server: str, path: str) -> Client:
        address = httpx.URL(server)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        await writer.drain()
        return Client(reader, writer)

    def hang_up(self) -> None:
        self.writer.transport.abort()


async def push(client: httpx.AsyncClient, payload: object) -> None:
    answer = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": payload}]})
    assert answer.status_code == 201, answer.text


async def statistics(client: httpx.AsyncClient) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get("/api/v1/analytics/batching")).json()
    return answer


async def parked(client: httpx.AsyncClient, count: int) -> None:
    async def enough() -> bool:
        return bool((await statistics(client))["parkedPops"] == count)

    await wait_until_async(enough, 60, f"{count} pops are parked")


WAIT = "/api/v1/pop/queue/q?wait=true&timeout=120000"


async def test_a_thousand_waiting_clients_that_hang_up_leave_nothing_behind(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        clients = [await Client.ask(server.url, WAIT) for _ in range(1_000)]
        await parked(client, 1_000)
        for one in clients:
            one.hang_up()
        await parked(client, 0)
        await push(client, "for those who stayed")
        popped = (await client.get(WAIT)).json()
        assert [message["data"] for message in popped["messages"]] == ["for those who stayed"]


async def test_a_client_that_hangs_up_while_it_is_answered_does_not_keep_its_lease(
    server: Server, database_url: str, database: Database
) -> None:
    async def asking() -> bool:
        rows = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND query LIKE '%pop_single_v1%'"
        )
        return len(rows) == 1

    async def given_back() -> bool:
        row = await database.fetchrow("SELECT leased_at, lease_id FROM positions")
        return row is not None and row["leased_at"] is not None and row["lease_id"] is None

    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        assert (await client.get("/api/v1/pop/queue/q")).status_code == 204
        await push(client, "a")
        connection = await asyncpg.connect(database_url)
        for _ in range(3):
            async with connection.transaction():
                await connection.execute("LOCK TABLE penstock.positions IN ACCESS EXCLUSIVE MODE")
                leaving = await Client.ask(server.url, WAIT)
                await wait_until_async(asking, 20, "the database is asked for the client that will leave")
                leaving.hang_up()
                assert (await statistics(client))["operations"]["pop"]["inFlight"] == 1
            await wait_until_async(given_back, 20, "what was leased for nobody is given back")
            await database.fetch("UPDATE positions SET leased_at = NULL")
        await connection.close()
        popped = (await client.get("/api/v1/pop/queue/q")).json()
        assert [(message["data"], message["retryCount"]) for message in popped["messages"]] == [("a", 0)]


async def test_a_broker_that_is_asked_to_stop_lets_its_waiting_clients_go(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        waiting = await Client.ask(server.url, WAIT)
        await parked(client, 1)
    server.child.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(5):
        answer = await waiting.reader.readline()
    assert b" 204 " in answer
    assert await asyncio.to_thread(server.child.process.wait, 20) in (0, -signal.SIGTERM)
