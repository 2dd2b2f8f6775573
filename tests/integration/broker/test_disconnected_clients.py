"""A real broker process and clients that disconnect: their pops end and their leases are released."""

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
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import UNREACHABLE_REDIS_URL
from tests.waiting import wait_until_async


@dataclass(frozen=True)
class Server:
    url: str
    child: Child


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A broker process with PostgreSQL only, without Redis and ClickHouse."""
    settings = Settings(
        home=tmp_path,
        load_management=False,
        port=any_free_port(),
        postgres_url=database_url,
        redis_url=UNREACHABLE_REDIS_URL,
        clickhouse_url="http://127.0.0.1:1",
        lease_ms=600_000,
    )
    broker = BrokerService(settings, build_environment(settings))
    with running(broker) as child:
        yield Server(broker.address, child)


class RawClient:
    """One connection that sends a request and may disconnect before the response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def send_get(server: str, path: str) -> RawClient:
        address = httpx.URL(server)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        return RawClient(reader, writer)

    def disconnect(self) -> None:
        self.writer.transport.abort()


async def push(client: httpx.AsyncClient, payload: object) -> None:
    response = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": payload}]})
    assert response.status_code == 201, response.text


async def read_batch_stats(client: httpx.AsyncClient) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get("/api/v1/analytics/batching")).json()
    return body


async def wait_for_parked_pops(client: httpx.AsyncClient, count: int) -> None:
    async def are_parked() -> bool:
        return bool((await read_batch_stats(client))["parkedPops"] == count)

    await wait_until_async(are_parked, 60, f"{count} pops are parked")


WAITING_POP = "/api/v1/pop/queue/q?wait=true&timeout=120000"


async def test_a_thousand_waiting_clients_disconnect_without_a_trace(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=deadline_s(60)) as client:
        clients = [await RawClient.send_get(server.url, WAITING_POP) for _ in range(1_000)]
        await wait_for_parked_pops(client, 1_000)
        for waiting_client in clients:
            waiting_client.disconnect()
        await wait_for_parked_pops(client, 0)
        await push(client, "for a connected client")
        popped = (await client.get(WAITING_POP)).json()
        assert [message["data"] for message in popped["messages"]] == ["for a connected client"]


async def test_a_client_that_disconnects_during_its_pop_does_not_keep_the_lease(
    server: Server, database_url: str, database: Database
) -> None:
    async def is_popping() -> bool:
        rows = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND query LIKE '%pop_single_v1%'"
        )
        return len(rows) == 1

    async def is_released() -> bool:
        row = await database.fetchrow("SELECT leased_at, lease_id FROM positions")
        return row is not None and row["leased_at"] is not None and row["lease_id"] is None

    async with httpx.AsyncClient(base_url=server.url, timeout=deadline_s(60)) as client:
        assert (await client.post("/api/v1/configure", json={"queue": "q"})).status_code == 200
        assert (await client.get("/api/v1/pop/queue/q")).status_code == 204
        await push(client, "a")
        connection = await asyncpg.connect(database_url)
        for _ in range(3):
            async with connection.transaction():
                await connection.execute("LOCK TABLE penstock.positions IN ACCESS EXCLUSIVE MODE")
                disconnecting = await RawClient.send_get(server.url, WAITING_POP)
                await wait_until_async(is_popping, 20, "the database executes the pop of the client")
                disconnecting.disconnect()
                assert (await read_batch_stats(client))["operations"]["pop"]["inFlight"] == 1
            await wait_until_async(is_released, 20, "the lease is released")
            await database.fetch("UPDATE positions SET leased_at = NULL")
        await connection.close()
        popped = (await client.get("/api/v1/pop/queue/q")).json()
        assert [(message["data"], message["retryCount"]) for message in popped["messages"]] == [("a", 0)]


async def test_a_stopping_broker_ends_the_requests_of_waiting_clients(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=deadline_s(60)) as client:
        waiting = await RawClient.send_get(server.url, WAITING_POP)
        await wait_for_parked_pops(client, 1)
    server.child.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(deadline_s(5)):
        status_line = await waiting.reader.readline()
    assert b" 204 " in status_line
    assert await asyncio.to_thread(server.child.process.wait, 20) in (0, -signal.SIGTERM)
