"""A paused durable queue hands out no messages, in every broker, until it is resumed."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.broker import Broker
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

POPS = [
    PopOptions(),
    PopOptions(batch=10),
    PopOptions(batch=10, max_partitions=3),
    PopOptions(auto_ack=True),
    PopOptions(partition="Default"),
]


@pytest.mark.parametrize("options", POPS, ids=str)
async def test_a_paused_queue_hands_out_no_messages(broker: Broker, options: PopOptions) -> None:
    await push(broker, "a")
    assert await broker.queues.pause(DEFAULT_SCOPE, "q")
    assert payloads(await broker.pop(LOCAL_CALLER, "q", "g", options)) == []
    assert [result.status for result in await push(broker, "b")] == ["queued"]
    assert payloads(await broker.pop(LOCAL_CALLER, "q", "g", options)) == []
    assert await broker.queues.resume(DEFAULT_SCOPE, "q")
    assert payloads(await broker.pop(LOCAL_CALLER, "q", "g", options)) == ["a", "b"][: options.batch]


async def test_leased_messages_of_a_paused_queue_can_be_acked(broker: Broker) -> None:
    await push(broker, "a", "b")
    popped = await pop(broker)
    await broker.queues.pause(DEFAULT_SCOPE, "q")
    assert [result.outcome for result in await ack(broker, popped)] == ["completed"]
    assert payloads(await pop(broker)) == []
    await broker.queues.resume(DEFAULT_SCOPE, "q")
    assert payloads(await pop(broker)) == ["b"]


async def test_a_pop_of_several_queues_skips_a_paused_one(broker: Broker) -> None:
    for queue in ("ns.a", "ns.b"):
        await push(broker, queue, queue=queue)
    await broker.queues.pause(DEFAULT_SCOPE, "ns.a")
    popped = await broker.pop_any(LOCAL_CALLER, "ns", None, "g", PopOptions())
    assert payloads(popped) == ["ns.b"]


async def test_resume_wakes_the_waiting_pops_of_all_brokers(brokers: Brokers, database: Database) -> None:
    first, second = await start_two(brokers, database)
    await push(first, "a", partition="x")
    await push(first, "b", partition="y")
    await first.queues.pause(DEFAULT_SCOPE, "q")
    waiting_pops = [start_waiting_pop(broker) for broker in (first, second)]
    for broker in (first, second):
        await wait_for_parked_pops(broker, 1)
    await first.queues.resume(DEFAULT_SCOPE, "q")
    async with asyncio.timeout(deadline_s(10)):
        popped = await asyncio.gather(*waiting_pops)
    assert sorted(payload for result in popped for payload in payloads(result)) == ["a", "b"]


async def test_waiting_pops_of_a_paused_queue_do_not_poll(broker: Broker, database: Database) -> None:
    """Ready messages set no timers for the pops that wait until the queue is resumed."""
    await push(broker, "a")
    await broker.queues.pause(DEFAULT_SCOPE, "q")
    waiting_pop = start_waiting_pop(broker)
    await wait_for_parked_pops(broker, 1)
    assert not broker.parked_pops._timers
    waiting_pop.cancel()


async def test_an_unknown_queue_is_neither_paused_nor_created(broker: Broker, database: Database) -> None:
    assert not await broker.queues.pause(DEFAULT_SCOPE, "q")
    assert not await broker.queues.resume(DEFAULT_SCOPE, "q")
    assert not await database.fetch("SELECT 1 FROM queues")
