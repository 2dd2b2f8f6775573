"""Waiting pops on a real database: woken at once, by the right thing, without asking in between."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import PopResult
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable
from tests.integration.broker.brokers import Brokers, SlowAnswers, ack, parked, payloads, pop, push, waiting
from tests.waiting import wait_until_async


async def answered(work: asyncio.Task[PopResult], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        await asyncio.shield(work)


async def test_work_for_many_reaches_many(broker: Broker) -> None:
    """One push to several partitions wakes one after the other until there is nothing left."""
    pops = [waiting(broker) for _ in range(10)]
    await parked(broker, 10)
    await asyncio.gather(*(push(broker, f"{n}", partition=f"p{n}") for n in range(10)))
    async with asyncio.timeout(20):
        results = await asyncio.gather(*pops)
    assert sorted(payload for popped in results for payload in payloads(popped)) == [
        str(n) for n in range(10)
    ]


async def test_a_lease_that_runs_out_wakes_a_waiting_pop(brokers: Brokers) -> None:
    broker = await brokers.start(lease_ms=300)
    await push(broker, "a")
    await pop(broker)
    work = waiting(broker)
    await parked(broker, 1)
    await answered(work)
    assert payloads(work.result()) == ["a"]


async def test_a_delay_that_ends_wakes_a_waiting_pop(broker: Broker, database: Database) -> None:
    await pop(broker)
    await database.fetch("UPDATE queues SET delay_ms = 300 WHERE name = 'q'")
    work = waiting(broker)
    await parked(broker, 1)
    await push(broker, "a")
    await answered(work)
    assert payloads(work.result()) == ["a"]


async def test_a_pop_that_leaves_with_its_answer_under_way_leaves_the_message_to_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, staying = waiting(broker), None
    await parked(broker, 1)
    staying = waiting(broker)
    await parked(broker, 2)
    answers = SlowAnswers(monkeypatch)
    answers.gate.clear()
    await push(broker, "a")

    async def leased() -> bool:
        return answers.answered == 1

    await wait_until_async(leased, 10, "the message is leased for the pop that will leave")
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    answers.gate.set()
    await answered(staying)
    assert payloads(staying.result()) == ["a"]
    assert staying.result().messages[0].attempts == 0, "nobody had it, so nobody failed"


async def test_a_pop_that_fails_when_it_is_woken_leaves_the_message_to_another(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = waiting(broker)
    await parked(broker, 1)
    staying = waiting(broker)
    await parked(broker, 2)
    SlowAnswers(monkeypatch).error = DatabaseUnavailable("gone for a moment")
    await push(broker, "a")
    with pytest.raises(DatabaseUnavailable):
        await failing
    await answered(staying)
    assert payloads(staying.result()) == ["a"]


async def test_parked_pops_cost_the_database_nothing(
    brokers: Brokers, broker: Broker, database: Database
) -> None:
    """A thousand wait for three seconds; in that time no connection of the broker runs a statement."""
    await push(broker, "for others", queue="busy")
    pops = [asyncio.create_task(pop(broker, f"q{n % 3}", f"g{n % 2}", wait_s=8)) for n in range(1_000)]
    await parked(broker, 1_000)

    async def last_statements() -> list[object]:
        rows = await database.fetch(
            "SELECT pid, query_start FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid() ORDER BY pid"
        )
        return [tuple(row) for row in rows]

    async def settled() -> bool:
        """The push has been counted and its gauges read: nothing is under way for that queue any more."""
        row = await database.fetchrow(
            "SELECT count(*) AS recent FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'penstock' AND pid <> pg_backend_pid() "
            "AND query_start > clock_timestamp() - interval '1 second'"
        )
        return row is not None and not row["recent"]

    await wait_until_async(settled, 6, "the broker is quiet")
    before = await last_statements()
    assert before
    results = await asyncio.gather(*pops)
    assert not any(popped.messages for popped in results)
    assert await last_statements() == before


async def test_a_pop_of_one_partition_does_not_ask_again_because_of_another(
    broker: Broker, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(broker, "for nobody here", partition="x")
    await push(broker, "taken", partition="y")
    await pop(broker, partition="y")
    work = asyncio.create_task(pop(broker, partition="y", wait_s=1.5))
    await parked(broker, 1)
    batches = broker.pops.batcher.stats.batches
    await work
    assert broker.pops.batcher.stats.batches == batches


async def test_a_push_wakes_who_waits_for_its_partition_and_nobody_else(broker: Broker) -> None:
    others = [waiting(broker, partition=f"other {n}") for n in range(20)]
    await parked(broker, 20)
    for wanted in ("mine", None):
        work = waiting(broker, partition=wanted)
        await parked(broker, 21)
        looks = broker.pops.batcher.stats.requests
        await push(broker, "a", partition="mine")
        await answered(work)
        assert payloads(work.result()) == ["a"]
        await ack(broker, work.result())
        assert broker.pops.batcher.stats.requests == looks + 1
    for work in others:
        work.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_what_is_acked_frees_the_partition_for_a_waiting_pop(broker: Broker) -> None:
    await push(broker, "a", "b")
    first = await pop(broker)
    work = waiting(broker)
    await parked(broker, 1)
    await ack(broker, first)
    await answered(work)
    assert payloads(work.result()) == ["b"]
