"""Clients wait while PostgreSQL or the broker is stopped, and continue after its restart."""

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
from tests.deadlines import deadline_s
from tests.integration.client.broker_server import FAST_RETRIES, run_broker

MANY_RETRIES = ClientSettings(retry_delay_s=0.05, max_retry_delay_s=0.3, retry_attempts=1000)
POLL = replace(MANY_RETRIES, queued_operation_behavior="poll", queued_operation_timeout_s=60)


class StoppablePostgres:
    """A PostgreSQL server of one test, which can be stopped and started."""

    def __init__(self, home: Path) -> None:
        self.server = Postgres(home, any_free_port())
        self._running = ExitStack()

    async def start(self) -> None:
        await asyncio.to_thread(self._running.enter_context, running(self.server))

    async def stop(self) -> None:
        await asyncio.to_thread(self._running.close)


@pytest_asyncio.fixture
async def postgres(open_tmp_path: Path) -> AsyncIterator[StoppablePostgres]:
    postgres = StoppablePostgres(open_tmp_path)
    await postgres.start()
    async with migrations.migration_lock(postgres.server.url) as connection:
        await migrations.apply(connection)
    yield postgres
    await postgres.stop()


async def test_pushes_and_consumers_survive_a_stop_of_postgresql(
    postgres: StoppablePostgres, queue: str
) -> None:
    handled: list[int] = []
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if len(set(handled)) == 4:
            complete.set()

    async with run_broker(postgres.server.url) as url, Client(url, MANY_RETRIES) as client:
        await client.push_many(NewMessage(queue, n) for n in range(2))
        async with client.consume(queue, handle, batch=10, wait_s=1):
            await postgres.stop()
            async with Client(url, FAST_RETRIES) as impatient_client:
                with pytest.raises(Unavailable) as unavailable:
                    await impatient_client.pop(queue)
                assert (unavailable.value.status, unavailable.value.code) == (503, "database_unavailable")
                assert unavailable.value.retry_after_s == 1.0
            deferred = await asyncio.wait_for(client.push_many([NewMessage(queue, 2)]), deadline_s(60))
            assert deferred.queued is not None
            assert deferred.queued.reason == "database_down"
            [operation_id] = deferred.operation_ids
            async with Client(url, POLL) as polling_client:
                polled_push = asyncio.create_task(polling_client.push(queue, 3))
                await postgres.start()
                assert (await asyncio.wait_for(polled_push, deadline_s(60))).operation_id is None
            assert (await client.operations.get(operation_id)).status == "completed"
            await asyncio.wait_for(complete.wait(), deadline_s(60))
        assert list(dict.fromkeys(handled)) == [0, 1, 2, 3]


async def test_without_a_journal_pushes_are_retried_until_postgresql_is_back(
    postgres: StoppablePostgres, queue: str
) -> None:
    async with (
        run_broker(postgres.server.url, journal_mb=0) as url,
        Client(url, MANY_RETRIES) as client,
    ):
        await client.push(queue, 0)
        await postgres.stop()
        async with Client(url, FAST_RETRIES) as impatient_client:
            with pytest.raises(Unavailable) as unavailable:
                await impatient_client.push(queue, "never")
            assert (unavailable.value.status, unavailable.value.code) == (503, "database_unavailable")
            assert (unavailable.value.retry_after_s, unavailable.value.uncertain) == (1.0, True)
        pending_push = asyncio.create_task(client.push(queue, 1))
        await postgres.start()
        assert (await asyncio.wait_for(pending_push, deadline_s(60))).status == "queued"
        assert [message.data for message in await client.pop(queue, batch=9)] == [0, 1]


async def test_clients_reconnect_to_a_restarted_broker(database_url: str, queue: str) -> None:
    port = any_free_port()
    handled = asyncio.Event()
    async with Client(f"http://127.0.0.1:{port}", MANY_RETRIES) as client:
        async with run_broker(database_url, port):
            await client.push(queue, 1)
        with pytest.raises(NoAnswer):
            await Client(f"http://127.0.0.1:{port}", FAST_RETRIES).push(queue, "never")
        async with client.consume(queue, lambda message: handled.set()) as consumer:
            pending_push = asyncio.create_task(client.push(queue, 2))
            async with run_broker(database_url, port):
                assert (await asyncio.wait_for(pending_push, deadline_s(60))).status == "queued"
                await asyncio.wait_for(handled.wait(), deadline_s(60))
                consumer.stop()
                await asyncio.wait_for(consumer.ended.wait(), deadline_s(60))
