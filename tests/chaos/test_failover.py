"""A broker moves to the standby when the primary of PostgreSQL dies under load.

With synchronous replication: every push that was answered is stored once and in order, and no message whose
ack was answered is delivered again. Without it: what the standby had received holds, the rest is lost, and
the broker mixes nothing up.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import NewMessage
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.config import Settings
from penstock.durable import migrations
from penstock.durable.pool import Database
from penstock.durable.postgres_probe import PostgresProbe
from penstock.durable.primary import FormerPrimary, connect_to_primary
from penstock.durable.server_facts import read_server_facts
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.service_components import BrokerService
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitter import Emitter
from tests.chaos.replication import ReplicatedPostgres, replicated_postgres
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

QUEUE = "orders"
PARTITIONS = [f"p{n}" for n in range(4)]
LEASE_LOST = 409
MESSAGES_EACH_SIDE = 120
"""Messages that are pushed and acked before and after the failover."""


@dataclass
class Load:
    """Producers and consumers of one broker, and what it answered them."""

    url: str
    pushed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    acked: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)
    delivered_after_ack: set[str] = field(default_factory=set)
    statuses: set[int] = field(default_factory=set)
    last_success_at: float = 0.0
    longest_gap_s: float = 0.0
    is_finished: bool = False

    async def call(self, client: httpx.AsyncClient, method: str, path: str, **options: Any) -> httpx.Response:
        """Repeat a request until it is answered; only an outage is a reason to repeat it."""
        while True:
            try:
                response = await client.request(method, f"{self.url}{path}", **options)
            except httpx.TransportError:
                await asyncio.sleep(0.01)
                continue
            self.statuses.add(response.status_code)
            if response.is_success or response.status_code == LEASE_LOST:
                return response
            assert response.status_code in (429, 503), response.text
            await asyncio.sleep(0.01)

    async def produce(self, client: httpx.AsyncClient, partition: str) -> None:
        while not self.is_finished:
            number = self.pushed[partition]
            item = {
                "queue": QUEUE,
                "partition": partition,
                "transactionId": f"{partition}-{number}",
                "payload": number,
            }
            await self.call(client, "POST", "/api/v1/push", json={"items": [item]})
            self.pushed[partition] += 1
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - (self.last_success_at or now))
            self.last_success_at = now

    async def consume(self, client: httpx.AsyncClient) -> None:
        while not (self.is_finished and len(self.acked | self.uncertain) >= sum(self.pushed.values())):
            response = await self.call(
                client, "GET", f"/api/v1/pop/queue/{QUEUE}", params={"batch": 20, "timeout": 200}
            )
            messages = response.json()["messages"] if response.status_code == 200 else []
            self.delivered_after_ack |= self.acked & {message["transactionId"] for message in messages}
            for message in messages:
                names = ("transactionId", "partitionId", "leaseId")
                ack = {name: message[name] for name in names} | {"status": "completed"}
                response = await self.call(client, "POST", "/api/v1/ack", json=ack)
                # After an outage, either an earlier attempt of this ack worked, or the lease has expired.
                is_acked = response.status_code != LEASE_LOST
                (self.acked if is_acked else self.uncertain).add(message["transactionId"])

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=20)
        async with (
            httpx.AsyncClient(timeout=deadline_s(20), limits=limits) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for partition in PARTITIONS:
                tasks.create_task(self.produce(client, partition))
            for _ in range(3):
                tasks.create_task(self.consume(client))
            try:
                yield
            finally:
                self.is_finished = True

    async def wait_for_messages(self, count: int) -> None:
        goal = len(self.acked) + count

        async def enough() -> bool:
            return len(self.acked) >= goal

        await wait_until_async(enough, 60, f"{count} more messages are acked")


def broker_settings(home: Path, postgres_url: str) -> Settings:
    home.mkdir()
    return Settings(
        home=home,
        port=any_free_port(),
        postgres_url=postgres_url,
        redis_url="redis://127.0.0.1:1/0",
        clickhouse_url="http://127.0.0.1:1",
        metrics_enabled=False,
        lease_ms=2_000,
    )


async def read_stored(url: str) -> dict[str, list[str]]:
    connection = await asyncpg.connect(url, server_settings={"search_path": "penstock"})
    rows = await connection.fetch(
        """SELECT t.name, l.transaction_ids FROM partitions t JOIN queues q ON q.id = t.queue_id
           JOIN log l ON l.partition_id = t.id WHERE q.name = $1 ORDER BY t.id, l.first_offset""",
        QUEUE,
    )
    await connection.close()
    stored: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        stored[row["name"]] += row["transaction_ids"]
    return stored


async def migrate_names(url: str) -> list[str]:
    async with migrations.migration_lock(url) as connection:
        return await migrations.apply(connection)


@pytest.mark.timeout(120)
async def test_nothing_answered_is_lost_when_the_primary_of_synchronous_replication_dies(
    server_home: Path,
) -> None:
    with replicated_postgres(server_home / "synchronous") as servers:
        await servers.start(synchronous=True)
        settings = broker_settings(server_home / "synchronous" / "broker", servers.url)
        service = BrokerService(settings, build_environment(settings))
        with running(service):
            load = Load(service.address)
            async with load.run():
                await load.wait_for_messages(MESSAGES_EACH_SIDE)
                await asyncio.to_thread(servers.kill_primary)
                await servers.promote_standby()
                await load.wait_for_messages(MESSAGES_EACH_SIDE)

            assert await read_stored(servers.standby.url) == {
                partition: [f"{partition}-{number}" for number in range(count)]
                for partition, count in load.pushed.items()
            }, "every answered push is stored once and in order"
            assert load.delivered_after_ack == set(), "no acked message is delivered again"
            assert 500 not in load.statuses, "a failover is an outage (503), not an error of the broker"
            print(f"longest time without a successful push: {load.longest_gap_s:.2f} s")
            await check_other_users(servers)


async def check_other_users(servers: ReplicatedPostgres) -> None:
    """Migrations, probes and `penstock doctor` find the new primary through the same URL."""
    assert await migrate_names(servers.url) == []
    probe = PostgresProbe(servers.url)
    try:
        assert await asyncio.to_thread(probe.check) is None
    finally:
        probe.close()
    facts = await asyncio.to_thread(read_server_facts, servers.url)
    assert facts.connections > 0
    # The former primary comes back and takes writes. This process knows the new timeline and refuses it.
    await servers.revive_primary()
    with pytest.raises(FormerPrimary, match="timeline 1"):
        await connect_to_primary(servers.primary.url, timeout=deadline_s(5))
    connection = await connect_to_primary(servers.url, timeout=deadline_s(5))
    assert await connection.fetchval("SHOW port") == str(servers.standby.port)
    await connection.close()


def make_broker(database: Database) -> Broker:
    """Return a broker whose background tasks do not run: no notification tells it to drop its caches."""
    emitter = Emitter("redis://127.0.0.1:1/0", buffer=100, enabled=False)
    return Broker(database, QueueMetrics(emitter, database), lease_ms=2_000)


def message(partition: str, number: int) -> NewMessage:
    return NewMessage(QUEUE, partition, f"{partition}-{number}".encode(), f"{partition}-{number}")


@pytest.mark.timeout(120)
async def test_without_synchronous_replication_only_what_the_standby_lacks_is_lost(server_home: Path) -> None:
    """The lost messages include the first ones of a partition, whose id the standby gives to another one."""
    with replicated_postgres(server_home / "asynchronous") as servers:
        await servers.start(synchronous=False)
        database = Database(servers.url, 4)
        broker = make_broker(database)
        await broker.push(DEFAULT_SCOPE, [message("kept", 0)])
        await wait_until_replicated(servers)
        servers.pause_replication()
        # More partitions than PostgreSQL reserves ids for in one log record (32).
        lost = [message(f"lost{number}", 0) for number in range(40)]
        results = await broker.push(DEFAULT_SCOPE, [message("kept", 1), *lost])
        assert {result.status for result in results} == {"queued"}

        servers.kill_primary()
        with pytest.raises(DatabaseUnavailable):
            await broker.push(DEFAULT_SCOPE, [message("kept", 2)])
        await servers.promote_standby()
        await wait_until_async(lambda: is_back(database), 20, "the broker reaches the new primary")

        other = Database(servers.standby.url, 1)
        others = make_broker(other)
        await others.push(DEFAULT_SCOPE, [message(f"new{number}", 0) for number in range(40)])
        await broker.push(DEFAULT_SCOPE, [message("kept", 2), message("lost7", 1)])

        stored = await read_stored(servers.standby.url)
        assert stored["kept"] == ["kept-0", "kept-2"], "the standby had not received kept-1"
        assert stored["lost7"] == ["lost7-1"], "the partition was created again"
        assert {tuple(stored[f"new{number}"]) for number in range(40)} == {
            (f"new{number}-0",) for number in range(40)
        }, "no partition got messages of another one that had its id before"
        await database.close()
        await other.close()


async def is_back(database: Database) -> bool:
    await database.ping()
    return True


async def wait_until_replicated(servers: ReplicatedPostgres) -> None:
    primary = await asyncpg.connect(servers.primary.url)
    caught_up = "SELECT bool_and(replay_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication"
    await wait_until_async(lambda: primary.fetchval(caught_up), 20, "the standby has everything")
    await primary.close()
