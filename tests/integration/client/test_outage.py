"""PostgreSQL stops and comes back, brokers stop and come back: clients sit it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.client import Client, ClientSettings, Message, NewMessage, NoAnswer, Unavailable
from penstock.durable import migrations
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.supervision.component import running
from tests.integration.client.served import QUICK, serving

PATIENT = ClientSettings(retry_delay_s=0.05, max_retry_delay_s=0.3, retry_attempts=1000)
POLLING = replace(PATIENT, queued_operation_behavior="poll", queued_operation_timeout_s=60)


class Database:
    """A PostgreSQL of its own, which can be stopped and started."""

    def __init__(self, home: Path) -> None:
        self.server = Postgres(home, any_free_port())
        self._running = ExitStack()

    async def start(self) -> None:
        await asyncio.to_thread(self._running.enter_context, running(self.server))

    async def stop(self) -> None:
        await asyncio.to_thread(self._running.close)


@pytest_asyncio.fixture
async def own_database(open_tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(open_tmp_path)
    await database.start()
    async with migrations.migration_lock(database.server.url) as connection:
        await migrations.apply(connection)
    yield database
    await database.stop()


async def test_pushes_and_consumers_sit_out_a_postgresql_that_stops(
    own_database: Database, queue: str
) -> None:
    handled: list[int] = []
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if len(set(handled)) == 4:
            complete.set()

    async with serving(own_database.server.url) as url, Client(url, PATIENT) as client:
        await client.push_many(NewMessage(queue, n) for n in range(2))
        async with client.consume(queue, handle, batch=10, wait_s=1):
            await own_database.stop()
            async with Client(url, QUICK) as impatient:
                with pytest.raises(Unavailable) as away:
                    await impatient.pop(queue)
                assert (away.value.status, away.value.code) == (503, "database_unavailable")
                assert away.value.retry_after_s == 1.0
            accepted = await asyncio.wait_for(client.push_many([NewMessage(queue, 2)]), 60)
            assert accepted.queued is not None
            assert accepted.queued.reason == "database_down"
            [operation_id] = accepted.operation_ids
            async with Client(url, POLLING) as polling:
                finished = asyncio.create_task(polling.push(queue, 3))
                await own_database.start()
                assert (await asyncio.wait_for(finished, 60)).operation_id is None
            assert (await client.operations.get(operation_id)).status == "completed"
            await asyncio.wait_for(complete.wait(), 60)
        assert list(dict.fromkeys(handled)) == [0, 1, 2, 3]


async def test_without_a_journal_pushes_are_repeated_until_postgresql_is_back(
    own_database: Database, queue: str
) -> None:
    async with (
        serving(own_database.server.url, journal_mb=0) as url,
        Client(url, PATIENT) as client,
    ):
        await client.push(queue, 0)
        await own_database.stop()
        async with Client(url, QUICK) as impatient:
            with pytest.raises(Unavailable) as away:
                await impatient.push(queue, "never")
            assert (away.value.status, away.value.code) == (503, "database_unavailable")
            assert (away.value.retry_after_s, away.value.uncertain) == (1.0, True)
        patient = asyncio.create_task(client.push(queue, 1))
        await own_database.start()
        assert (await asyncio.wait_for(patient, 60)).status == "queued"
        assert [message.data for message in await client.pop(queue, batch=9)] == [0, 1]


async def test_a_broker_that_is_started_anew_is_found_again(
    postgres_url: str, database_url: str, queue: str
) -> None:
    port = any_free_port()
    got = asyncio.Event()
    async with Client(f"http://127.0.0.1:{port}", PATIENT) as client:
        async with serving(database_url, port):
            await client.push(queue, 1)
        with pytest.raises(NoAnswer):
            await Client(f"http://127.0.0.1:{port}", QUICK).push(queue, "never")
        async with client.consume(queue, lambda message: got.set()) as consumer:
            pushing = asyncio.create_task(client.push(queue, 2))
            async with serving(database_url, port):
                assert (await asyncio.wait_for(pushing, 60)).status == "queued"
                await asyncio.wait_for(got.wait(), 60)
                consumer.stop()
                await asyncio.wait_for(consumer.ended.wait(), 60)
