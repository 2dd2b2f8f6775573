"""Waiting pops on a real database wake at once, for the right event, without polling."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import PopResult
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import (
    Brokers,
    DelayedPops,
    ack,
    create_queue,
    payloads,
    pop,
    push,
    start_waiting_pop,
    wait_for_parked_pops,
)
from tests.waiting import wait_until_async


async def wait_for(task: asyncio.Task[PopResult], timeout_s: float = 10) -> None:
    async with asyncio.timeout(deadline_s(timeout_s)):
        await asyncio.shield(task)


async def test_messages_in_many_partitions_wake_many_pops(broker: Broker) -> None:
    """Pushes to several partitions wake one pop after the other until all messages are taken."""
    pops = [start_waiting_pop(broker) for _ in range(10)]
    await wait_for_parked_pops(broker, 10)
    await asyncio.gather(*(push(broker, f"{n}", partition=f"p{n}") for n in range(10)))
    async with asyncio.timeout(deadline_s(20)):
        results = await asyncio.gather(*pops)
    assert sorted(payload for popped in results for payload in payloads(popped)) == [
        str(n) for n in range(10)
    ]


async def test_an_expired_lease_wakes_a_waiting_pop(brokers: Brokers) -> None:
    broker = await brokers.start(lease_ms=300)
    await push(broker, "a")
    await pop(broker)
    waiting_pop = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    await wait_for(waiting_pop)
    assert payloads(waiting_pop.result()) == ["a"]


async def test_the_end_of_a_delay_wakes_a_waiting_pop(broker: Broker, database: Database) -> None:
    await create_queue(broker)
    await database.fetch("UPDATE queues SET delay_ms = 300 WHERE name = 'q'")
    waiting_pop = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    await push(broker, "a")
    await wait_for(waiting_pop)
    assert payloads(waiting_pop.result()) == ["a"]


async def test_a_cancelled_pop_releases_its_message_to_another_pop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_queue(broker)
    cancelled = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    other = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 2)
    delayed_pops = DelayedPops(monkeypatch)
    delayed_pops.gate.clear()
    await push(broker, "a")

    async def is_leased() -> bool:
        return delayed_pops.executed == 1

    await wait_until_async(is_leased, 10, "the message is leased for the pop that is cancelled next")
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    delayed_pops.gate.set()
    await wait_for(other)
    assert payloads(other.result()) == ["a"]
    assert other.result().messages[0].attempts == 0, "no consumer received it, so no attempt counts"


async def test_a_pop_that_fails_after_its_wake_up_leaves_the_message_to_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_queue(broker)
    failing = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    other = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 2)
    DelayedPops(monkeypatch).error = DatabaseUnavailable("down for a moment")
    await push(broker, "a")
    with pytest.raises(DatabaseUnavailable):
        await failing
    await wait_for(other)
    assert payloads(other.result()) == ["a"]


async def test_parked_pops_do_not_query_the_database(
    brokers: Brokers, broker: Broker, database: Database
) -> None:
    """A thousand pops wait for several seconds, and the broker runs no statement meanwhile."""
    await push(broker, "for others", queue="busy")
    pops = [asyncio.create_task(pop(broker, f"q{n % 3}", f"g{n % 2}", wait_s=8)) for n in range(1_000)]
    await wait_for_parked_pops(broker, 1_000)

    async def last_statements() -> list[object]:
        rows = await database.fetch(
            "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid() ORDER BY pid"
        )
        return [tuple(row) for row in rows]

    async def is_quiet() -> bool:
        """The push has been counted and its gauges read: no statement has run for a second."""
        row = await database.fetchrow(
            "SELECT count(*) AS recent FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid() "
            "AND query_start > clock_timestamp() - interval '1 second'"
        )
        return row is not None and not row["recent"]

    await wait_until_async(is_quiet, 6, "the broker is quiet")
    before = await last_statements()
    assert before
    results = await asyncio.gather(*pops)
    assert not any(popped.messages for popped in results)
    assert await last_statements() == before


async def test_messages_of_another_partition_do_not_wake_a_pop(
    broker: Broker, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(broker, "for another pop", partition="x")
    await push(broker, "taken", partition="y")
    await pop(broker, partition="y")
    waiting_pop = asyncio.create_task(pop(broker, partition="y", wait_s=1.5))
    await wait_for_parked_pops(broker, 1)
    batches = broker.pops.batcher.stats.batches
    await waiting_pop
    assert broker.pops.batcher.stats.batches == batches


async def test_a_push_wakes_one_pop_of_its_partition_and_no_other(broker: Broker) -> None:
    # The creation of a partition wakes its pops too.
    await push(broker, "first", partition="mine")
    await ack(broker, await pop(broker, partition="mine"))
    others = [start_waiting_pop(broker, partition=f"other {n}") for n in range(20)]
    await wait_for_parked_pops(broker, 20)
    for partition in ("mine", None):
        waiting_pop = start_waiting_pop(broker, partition=partition)
        await wait_for_parked_pops(broker, 21)
        requests = broker.pops.batcher.stats.requests
        await push(broker, "a", partition="mine")
        await wait_for(waiting_pop)
        assert payloads(waiting_pop.result()) == ["a"]
        await ack(broker, waiting_pop.result())
        assert broker.pops.batcher.stats.requests == requests + 1
    for waiting_pop in others:
        waiting_pop.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_an_ack_frees_its_partition_for_a_waiting_pop(broker: Broker) -> None:
    await push(broker, "a", "b")
    first = await pop(broker)
    waiting_pop = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    await ack(broker, first)
    await wait_for(waiting_pop)
    assert payloads(waiting_pop.result()) == ["b"]
