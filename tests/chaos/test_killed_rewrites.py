"""Kill PostgreSQL while busy tables are rewritten: every row is there afterwards, and queues work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from penstock.durable import migrations
from penstock.durable.faults import UNAVAILABLE
from penstock.durable.pool import SCHEMA, Database
from penstock.durable.storage import busy_tables
from penstock.durable.storage.busy_tables import BUSY_TABLES
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from tests.chaos.test_brokers import Process
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.waiting import wait_until_async

KILLS = 3
PARTITIONS = 200


@pytest.fixture
async def postgres(open_tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(Postgres(open_tmp_path, any_free_port()))
    process.start()
    await process.wait_until_up()
    yield process
    process.stop()


class Rewriter:
    """Rewrites all busy tables without a pause until its connection ends."""

    def __init__(self) -> None:
        self.rewrites = 0

    async def run(self, url: str) -> None:
        connection = await asyncpg.connect(
            url, server_settings={"search_path": SCHEMA, "application_name": "penstock busy tables"}
        )
        while True:
            for table in BUSY_TABLES:
                self.rewrites += await busy_tables.rewrite(connection, table) is not None


async def read_tables(database: Database) -> list[list[str]]:
    return [sorted(map(str, await database.fetch(f"SELECT * FROM {t.name}"))) for t in BUSY_TABLES]


async def test_a_killed_postgres_keeps_every_row_of_a_table_that_is_rewritten(postgres: Process) -> None:
    assert isinstance(postgres.program, Postgres)
    url = postgres.program.url
    async with migrations.migration_lock(url) as connection:
        await migrations.apply(connection)
    database = Database(url, 2)
    try:
        queue = QueueUnderTest(database)
        await queue.group()
        await queue.partitions(*(f"p{number}" for number in range(PARTITIONS)))
        await queue.push("first")
        for _ in range(KILLS):
            await queue.ack(await queue.pop())
            await queue.push("next")
            before = await read_tables(database)
            rewriter = Rewriter()
            rewriting = asyncio.create_task(rewriter.run(url))

            async def has_rewritten(rewriter: Rewriter = rewriter) -> bool:
                return rewriter.rewrites >= 2 * len(BUSY_TABLES)

            await wait_until_async(has_rewritten, 30, "tables are rewritten")
            postgres.kill(signal.SIGKILL)
            [error] = await asyncio.gather(rewriting, return_exceptions=True)
            assert isinstance(error, UNAVAILABLE)
            postgres.start()
            await postgres.wait_until_up()
            await database.close()
            database = queue.database = Database(url, 2)
            assert await read_tables(database) == before
    finally:
        await database.close()
