"""A pop of a queue or partition that does not exist creates nothing, and can wait until it exists."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import PopResult
from penstock.broker.queues.pop import PopOptions
from penstock.caller import LOCAL_CALLER
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.broker.brokers import (
    Brokers,
    ack,
    payloads,
    pop,
    push,
    start_waiting_pop,
    wait_for_parked_pops,
)
from tests.integration.broker.test_two_brokers import start_two
from tests.waiting import wait_until_async


async def count_rows(database: Database) -> dict[str, int]:
    tables = ("environments", "queues", "partitions", "groups", "positions", "tallies")
    return {name: (await database.fetch(f"SELECT count(*) FROM {name}"))[0]["count"] for name in tables}


def start_new_only_pop(broker: Broker, partition: str | None = None) -> asyncio.Task[PopResult]:
    """Start a waiting pop of a group that begins with new messages."""
    options = PopOptions(subscription="new", wait_s=60, partition=partition)
    return asyncio.create_task(broker.pop(LOCAL_CALLER, "q", "g", options))


@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_pop_of_an_unknown_queue_creates_nothing(
    broker: Broker, database: Database, partition: str | None
) -> None:
    rows = await count_rows(database)
    assert payloads(await pop(broker, partition=partition)) == []
    assert payloads(await pop(broker, partition=partition, wait_s=0.05)) == []
    assert not (await broker.pop_any(LOCAL_CALLER, "q", None, "g", PopOptions())).messages
    assert await count_rows(database) == rows
    assert not broker.parked_pops.watch_lists


async def test_a_pop_of_an_unknown_partition_creates_no_partition(broker: Broker, database: Database) -> None:
    await push(broker, "a")
    await pop(broker)
    rows = await count_rows(database)
    assert payloads(await pop(broker, partition="typo")) == []
    assert payloads(await pop(broker, partition="typo", wait_s=0.05)) == []
    assert await count_rows(database) == rows


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_the_first_push_wakes_the_pops_that_wait_for_its_queue(
    broker: Broker, partition: str | None
) -> None:
    waiting_pops = [start_waiting_pop(broker, partition=partition) for _ in range(2)]
    await wait_for_parked_pops(broker, 2)
    await push(broker, "a")
    async with asyncio.timeout(deadline_s(10)):
        done, pending = await asyncio.wait(waiting_pops, return_when=asyncio.FIRST_COMPLETED)
    [popped], [waiting_pop] = [task.result() for task in done], pending
    assert payloads(popped) == ["a"]
    await wait_for_parked_pops(broker, 1)
    await push(broker, "b")
    await ack(broker, popped)
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["b"]
    assert not broker.parked_pops.watch_lists


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_a_push_wakes_a_pop_that_waits_for_its_queue_in_another_broker(
    brokers: Brokers, database: Database, partition: str | None
) -> None:
    first, second = await start_two(brokers, database)
    waiting_pop = start_waiting_pop(second, partition=partition)
    await wait_for_parked_pops(second, 1)
    await push(first, "a")
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["a"]


async def test_a_configured_queue_gets_the_group_of_a_pop_that_waits_for_it(
    brokers: Brokers, database: Database
) -> None:
    first, second = await start_two(brokers, database)
    waiting_pop = start_new_only_pop(second)
    await wait_for_parked_pops(second, 1)
    await first.queues.configure(DEFAULT_SCOPE, "q", {"leaseTime": 30})

    async def group_exists() -> bool:
        return bool((await count_rows(database))["groups"])

    await wait_until_async(group_exists, 10, "the waiting pop has created its group")
    await push(first, "a")
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["a"]


@pytest.mark.parametrize("partition", [None, "Default"])
async def test_a_group_that_waited_for_its_queue_gets_its_first_messages(
    brokers: Brokers, database: Database, partition: str | None
) -> None:
    first, second = await start_two(brokers, database)
    waiting_pop = start_new_only_pop(second, partition)
    await wait_for_parked_pops(second, 1)
    await push(first, "first", "second")
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pop) == ["first"]


async def test_a_group_that_polled_before_its_queue_existed_gets_its_first_messages(broker: Broker) -> None:
    new_only = PopOptions(subscription="new")
    assert not (await broker.pop(LOCAL_CALLER, "q", "early", new_only)).messages
    await push(broker, "first")
    assert payloads(await broker.pop(LOCAL_CALLER, "q", "early", new_only)) == ["first"]
    assert payloads(await broker.pop(LOCAL_CALLER, "q", "late", new_only)) == []


async def test_a_push_wakes_a_pop_that_waits_for_a_new_partition(
    brokers: Brokers, database: Database
) -> None:
    first, second = await start_two(brokers, database)
    await push(first, "elsewhere")
    waiting_pops = [start_waiting_pop(second, partition=name) for name in ("x", "y")]
    await wait_for_parked_pops(second, 2)
    await push(first, "for y", partition="y")
    async with asyncio.timeout(deadline_s(10)):
        assert payloads(await waiting_pops[1]) == ["for y"]
    assert not waiting_pops[0].done()
    waiting_pops[0].cancel()


async def test_a_deleted_queue_is_not_created_again_by_its_waiting_pops(
    brokers: Brokers, database: Database
) -> None:
    first, second = await start_two(brokers, database)
    await push(first, "a")
    await ack(first, await pop(first))
    waiting_pops = [start_waiting_pop(broker) for broker in (first, second)]
    await wait_for_parked_pops(first, 1)
    await wait_for_parked_pops(second, 1)
    assert await first.queues.delete(DEFAULT_SCOPE, "q")
    await wait_for_parked_pops(first, 1)
    await wait_for_parked_pops(second, 1)
    assert (await count_rows(database))["queues"] == 0
    await push(first, "b")
    async with asyncio.timeout(deadline_s(10)):
        done, pending = await asyncio.wait(waiting_pops, return_when=asyncio.FIRST_COMPLETED)
    assert [payloads(task.result()) for task in done] == [["b"]]
    for task in pending:
        task.cancel()
