"""Batches on a real database: items that fail alone, outages that fail all, and recovery."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, MessageLease, NewMessage
from penstock.durable.pool import Database
from penstock.encryption import KeyMissing, PayloadCipher
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, CuttableProxy, ack, create_queue, payloads, pop, push
from tests.waiting import wait_until_async


async def test_a_message_the_database_rejects_fails_alone(broker: Broker) -> None:
    """PostgreSQL cannot store a NUL byte in text. The API rejects it; here it must fail alone."""

    def message(n: int) -> NewMessage:
        return NewMessage("q", "Default", str(n).encode(), transaction_id="a\0b" if n == 13 else f"t{n}")

    await push(broker, "first")
    results = await asyncio.gather(
        *(broker.push(DEFAULT_SCOPE, [message(n)]) for n in range(40)), return_exceptions=True
    )
    failed = [n for n, result in enumerate(results) if isinstance(result, BaseException)]
    assert failed == [13]
    stored = payloads(await pop(broker, batch=100))
    assert sorted(stored) == sorted(["first", *(str(n) for n in range(40) if n != 13)])


async def test_an_ack_the_database_rejects_fails_alone(broker: Broker) -> None:
    await push(broker, *(f"{n}" for n in range(20)))
    popped = await pop(broker, batch=20)
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    requests = [
        Ack(10**30 if n == 7 else message.partition_id, *lease, message.transaction_id, "completed")
        for n, message in enumerate(popped.messages)
    ]
    results = await asyncio.gather(
        *(broker.ack(DEFAULT_SCOPE, [request]) for request in requests), return_exceptions=True
    )
    assert [n for n, result in enumerate(results) if isinstance(result, BaseException)] == [7]


@pytest.mark.parametrize(
    "text", ["99999999999999999999.{}", "-99999999999999999999.{}", "1e3.{}", ".{}", "{}"]
)
def test_text_that_is_not_a_lease_parses_to_none(text: str) -> None:
    assert MessageLease.parse(text.format(uuid.uuid4())) is None


async def test_requests_fail_during_an_outage_and_succeed_after_it(
    database_url: str,
) -> None:
    proxy = CuttableProxy(database_url)
    async with proxy.run() as url:
        brokers = Brokers(url)
        broker = await brokers.start()
        await push(broker, "before")
        proxy.cut()
        for _ in range(2):  # first with broken connections, then with refused ones
            results = await asyncio.gather(
                *(push(broker, str(n)) for n in range(20)), pop(broker), return_exceptions=True
            )
            assert all(isinstance(result, DatabaseUnavailable) for result in results), results
        proxy.restore()

        async def is_over() -> bool:
            return not broker.database.outage.is_active

        await wait_until_async(is_over, 10, "the outage is over")
        await push(broker, "after")
        assert payloads(await pop(broker, batch=10)) == ["before", "after"], "failed pushes stored nothing"
        await brokers.stop()


async def test_concurrent_first_requests_open_one_pool(database_url: str, database: Database) -> None:
    fresh = Database(database_url, 3)
    await asyncio.gather(*(fresh.ping() for _ in range(50)))
    rows = await database.fetch(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'penstock' AND pid <> pg_backend_pid()"
    )
    await fresh.close()
    assert len(rows) <= 3

    async def is_closed() -> bool:
        rows = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid()"
        )
        return not rows

    await wait_until_async(is_closed, 10, "no connection is left open")


async def test_a_pop_that_cannot_decrypt_releases_its_lease(brokers: Brokers, database: Database) -> None:
    """A broker with the key can pop the message at once."""
    broker_with_key = await brokers.start(cipher=PayloadCipher("k:" + "A" * 43 + "="))
    broker_without_key = await brokers.start()
    await create_queue(broker_with_key)
    await database.fetch("UPDATE queues SET encrypted = true WHERE name = 'q'")
    broker_with_key.id_cache.invalidate_queue(DEFAULT_SCOPE, "q")
    await push(broker_with_key, "secret")
    for _ in range(3):
        with pytest.raises(KeyMissing):
            await pop(broker_without_key)
    popped = await pop(broker_with_key)
    assert payloads(popped) == ["secret"]
    assert popped.messages[0].attempts == 0
    assert all(result.success for result in await ack(broker_with_key, popped))
