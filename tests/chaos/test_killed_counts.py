"""Kill a broker between an operation and the emission of its count: the metrics are right in the end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from penstock.config import Settings
from penstock.durable import migrations
from penstock.durable.pool import Database
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.service_components import BrokerService
from penstock.streams.emitted_totals import TOTALS_KEY
from tests.chaos.test_brokers import Process
from tests.deadlines import deadline_s
from tests.emitted_counts import sum_emitted_counts
from tests.integration.databases import new_database
from tests.waiting import wait_until_async

MAX_KILLS = 5


@pytest.fixture
async def database_url(postgres_url: str) -> AsyncIterator[str]:
    async with new_database(postgres_url) as url:
        async with migrations.migration_lock(url) as connection:
            await migrations.apply(connection)
        yield url


async def push_and_ack(url: str, messages: int) -> None:
    async with httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=deadline_s(30)) as client:
        items = [{"queue": "orders", "payload": number} for number in range(messages)]
        (await client.post("/push", json={"items": items})).raise_for_status()
        popped = await client.get(
            "/pop/queue/orders", params={"batch": messages, "consumerGroup": "g", "autoAck": True}
        )
        assert len(popped.json()["messages"]) == messages


async def test_the_counts_of_a_killed_broker_agree_with_postgres_in_the_end(
    open_tmp_path: Path, database_url: str, redis_url: str
) -> None:
    settings = Settings(
        home=open_tmp_path,
        port=any_free_port(),
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url="http://127.0.0.1:1",
    )
    broker = Process(BrokerService(settings, build_environment(settings)))
    database = Database(database_url, 2)
    async with Redis.from_url(redis_url) as redis:

        async def read_counts() -> tuple[tuple[int, int], tuple[int, int]]:
            """Return pushed and completed messages: those in the streams, and those in PostgreSQL."""
            emitted = await sum_emitted_counts(redis, "orders")
            row = await database.fetchrow(
                "SELECT coalesce(sum(messages) FILTER (WHERE group_id = 0), 0)::bigint AS pushed, "
                "coalesce(sum(completed), 0)::bigint AS completed FROM tallies"
            )
            assert row is not None
            return (emitted["enqueued"], emitted["acked"]), (row["pushed"], row["completed"])

        async def has_totals() -> bool:
            return bool(await redis.exists(TOTALS_KEY))

        async def agree() -> bool:
            emitted, stored = await read_counts()
            return emitted == stored

        try:
            lost = 0
            for _ in range(MAX_KILLS):
                broker.start()
                await broker.wait_until_up()
                await wait_until_async(has_totals, 30, "the broker compares its counts")
                await push_and_ack(broker.program.address, 20)
                broker.kill(signal.SIGKILL)
                emitted, stored = await read_counts()
                lost = stored[1] - emitted[1]
                if lost:
                    break
            assert lost, "no kill came before the counts were emitted"
            broker.start()
            await broker.wait_until_up()
            await wait_until_async(agree, 120, "the counts agree with PostgreSQL")
        finally:
            broker.stop()
            await database.close()
