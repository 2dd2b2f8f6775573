"""Batches on a real database: what fails alone, what fails together, and what comes back by itself."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from penstock.broker.broker import Broker
from penstock.broker.encryption import KeyMissing, PayloadCipher
from penstock.broker.messages import AckRequest, MessageLease, NewMessage
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE
from tests.integration.broker.brokers import Brokers, Cable, ack, payloads, pop, push
from tests.waiting import wait_until_async


async def test_a_message_the_database_refuses_fails_alone(broker: Broker) -> None:
    """Text with a zero byte cannot be stored; the broker's callers keep it out, but it must not spread."""

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


async def test_an_ack_the_database_refuses_fails_alone(broker: Broker) -> None:
    await push(broker, *(f"{n}" for n in range(20)))
    popped = await pop(broker, batch=20)
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    settlements = [
        AckRequest(10**30 if n == 7 else message.partition_id, message.transaction_id, lease, "completed")
        for n, message in enumerate(popped.messages)
    ]
    results = await asyncio.gather(
        *(broker.ack(DEFAULT_SCOPE, [settlement]) for settlement in settlements), return_exceptions=True
    )
    assert [n for n, result in enumerate(results) if isinstance(result, BaseException)] == [7]


@pytest.mark.parametrize(
    "text", ["99999999999999999999.{}", "-99999999999999999999.{}", "1e3.{}", ".{}", "{}"]
)
def test_a_lease_that_no_pop_can_have_given_is_none(text: str) -> None:
    assert MessageLease.parse(text.format(uuid.uuid4())) is None


async def test_when_the_database_is_away_everybody_is_told_and_it_comes_back_by_itself(
    database_url: str,
) -> None:
    cable = Cable(database_url)
    async with cable.laid() as url:
        brokers = Brokers(url)
        broker = await brokers.start()
        await push(broker, "before")
        cable.sever()
        for _ in range(2):  # connections that break, and connections that are refused
            results = await asyncio.gather(
                *(push(broker, str(n)) for n in range(20)), pop(broker), return_exceptions=True
            )
            assert all(isinstance(result, DatabaseUnavailable) for result in results), results
        cable.mend()

        async def is_over() -> bool:
            return not broker.database.outage.is_active

        await wait_until_async(is_over, 10, "the outage is over")
        await push(broker, "after")
        assert payloads(await pop(broker, batch=10)) == ["before", "after"], "what failed left nothing"
        await brokers.stop()


async def test_the_first_requests_open_one_pool_between_them(database_url: str, database: Database) -> None:
    fresh = Database(database_url, 3)
    await asyncio.gather(*(fresh.ping() for _ in range(50)))
    rows = await database.fetch(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'penstock' AND pid <> pg_backend_pid()"
    )
    await fresh.close()
    assert len(rows) <= 3

    async def closed() -> bool:
        left = await database.fetch(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid()"
        )
        return not left

    await wait_until_async(closed, 10, "no connection is left open")


async def test_a_payload_that_cannot_be_opened_does_not_keep_its_lease(
    brokers: Brokers, database: Database
) -> None:
    """Whoever has the key can take it at once."""
    keyed = await brokers.start(cipher=PayloadCipher("k:" + "A" * 43 + "="))
    keyless = await brokers.start()
    await pop(keyed)
    await database.fetch("UPDATE queues SET encrypted = true WHERE name = 'q'")
    keyed.id_cache.invalidate_queue(DEFAULT_SCOPE, "q")
    await push(keyed, "secret")
    for _ in range(3):
        with pytest.raises(KeyMissing):
            await pop(keyless)
    popped = await pop(keyed)
    assert payloads(popped) == ["secret"]
    assert popped.messages[0].attempts == 0
    assert all(result.success for result in await ack(keyed, popped))
