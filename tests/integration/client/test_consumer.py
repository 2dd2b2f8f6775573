"""Consumers: order, failures, leases, and stopping without losing anything."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx
import pytest

from penstock.client import (
    Batches,
    Client,
    InvalidRequest,
    Message,
    NewMessage,
    PartlyFailed,
)
from tests.waiting import wait_until_async


async def left(broker_url: str, queue: str) -> tuple[int, int]:
    """What waits, and what is held."""
    async with httpx.AsyncClient() as plain:
        told = (await plain.get(f"{broker_url}/api/v1/resources/queues/{queue}")).json()
    return told["depth"], told["running"]


async def _is(value: bool) -> bool:
    return value


async def _free(broker_url: str, queue: str) -> bool:
    return (await left(broker_url, queue))[1] == 0


async def test_concurrent_handlers_keep_the_order_of_every_partition(
    client: Client, broker_url: str, queue: str
) -> None:
    partitions, each = [f"p{n}" for n in range(6)], 12
    await client.push_many(NewMessage(queue, n, partition) for n in range(each) for partition in partitions)
    handled: dict[str, list[int]] = defaultdict(list)
    at_work: set[str] = set()
    most = 0
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal most
        assert message.partition not in at_work
        at_work.add(message.partition)
        most = max(most, len(at_work))
        await client.options_of(queue)  # work that lets others run meanwhile
        at_work.remove(message.partition)
        handled[message.partition].append(message.data)
        if sum(map(len, handled.values())) == each * len(partitions):
            done.set()

    async with client.consume(queue, handle, concurrency=4, batch=5, partitions=2):
        await asyncio.wait_for(done.wait(), 30)
    assert handled == {partition: list(range(each)) for partition in partitions}
    assert most > 1
    assert await left(broker_url, queue) == (0, 0)


async def test_nothing_overtakes_a_message_that_fails(client: Client, broker_url: str, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(5))
    tried: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        tried.append((message.data, message.retry_count))
        if message.data == 2 and message.retry_count < 2:
            raise ValueError("not yet")
        if message.data == 4:
            consumer.stop()

    consumer = client.consume(queue, handle, batch=5)
    await asyncio.wait_for(consumer.run(), 30)
    assert tried == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)]
    assert await left(broker_url, queue) == (0, 0)


async def test_where_order_does_not_matter_the_rest_is_handled_at_once(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(3))
    tried: list[int] = []

    async def handle(message: Message) -> None:
        tried.append(message.data)
        if len(tried) == 4:
            consumer.stop()
        if message.data == 0 and message.retry_count == 0:
            raise ValueError("not yet")

    consumer = client.consume(queue, handle, batch=3, ordered=False)
    await asyncio.wait_for(consumer.run(), 30)
    assert tried == [0, 1, 2, 0]


async def test_the_error_of_a_handler_is_kept_with_the_dead_letter(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"retryLimit": 0})
    await client.push(queue, 1)

    def handle(message: Message) -> None:
        consumer.stop()
        raise ValueError("no such customer")

    consumer = client.consume(queue, handle)
    await asyncio.wait_for(consumer.run(), 30)
    async with httpx.AsyncClient() as plain:
        letters = (await plain.get(f"{broker_url}/api/v1/dlq", params={"queue": queue})).json()["messages"]
    assert [letter["errorMessage"] for letter in letters] == ["ValueError: no such customer"]


async def test_a_handler_may_take_longer_than_the_lease(
    client: Client, broker_url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.configure(queue, {"leaseTime": 1.2})
    await client.push_many(NewMessage(queue, n) for n in range(2))
    handled: list[tuple[int, int]] = []
    renewals = 0

    async def handle(message: Message) -> None:
        if message.data == 0:  # renewed three times within the lease: it would have run out twice
            await wait_until_async(lambda: _is(renewals >= 7), 30, "the lease is renewed again and again")
        handled.append((message.data, message.retry_count))
        if message.data == 1:
            consumer.stop()

    consumer = client.consume(queue, handle, batch=2, on_lease_lost=lambda messages: handled.append((-1, -1)))
    extend = consumer._api.extend

    async def counted(*asked: Any) -> Any:
        nonlocal renewals
        renewals += 1
        return await extend(*asked)

    monkeypatch.setattr(consumer._api, "extend", counted)
    await asyncio.wait_for(consumer.run(), 60)
    assert handled == [(0, 0), (1, 0)]
    assert await left(broker_url, queue) == (0, 0)


async def test_a_lost_lease_is_told_and_the_consumer_goes_on(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"leaseTime": 1.2})
    await client.push_many(NewMessage(queue, n) for n in range(3))
    handled: list[int] = []
    lost: list[list[int]] = []

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if len(handled) == 1:
            await wait_until_async(lambda: _free(broker_url, queue), 30, "the lease has run out")
        if handled.count(2) == 1:
            consumer.stop()

    def on_lease_lost(messages: Sequence[Message]) -> None:
        lost.append([message.data for message in messages])

    consumer = client.consume(queue, handle, batch=3, auto_renew=False, on_lease_lost=on_lease_lost)
    await asyncio.wait_for(consumer.run(), 30)
    assert lost == [[0]]
    assert handled == [0, 0, 1, 2]  # neither 1 nor 2 was begun under the lost lease
    assert await left(broker_url, queue) == (0, 0)


async def test_a_lease_that_somebody_ends_is_noticed_while_the_handler_runs(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"leaseTime": 0.6})
    await client.push(queue, 1)
    running, told = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        running.set()
        await told.wait()

    async with client.consume(queue, handle, group="g", on_lease_lost=lambda messages: told.set()):
        await asyncio.wait_for(running.wait(), 30)
        async with httpx.AsyncClient() as plain:
            sought = await plain.post(
                f"{broker_url}/api/v1/consumer-groups/g/queues/{queue}/seek", json={"toEnd": True}
            )
        assert sought.status_code == 200
        await asyncio.wait_for(told.wait(), 30)


async def test_stopping_lets_a_handler_finish_and_gives_the_rest_back(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(4))
    running, go_on = asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    async def handle(message: Message) -> None:
        running.set()
        await go_on.wait()
        handled.append(message.data)

    consumer = client.consume(queue, handle, batch=4)
    ending = asyncio.create_task(consumer.run())
    await asyncio.wait_for(running.wait(), 30)
    consumer.stop()
    go_on.set()
    await asyncio.wait_for(ending, 30)
    assert handled == [0]
    rest = await client.pop(queue, batch=9)
    assert [(message.data, message.retry_count) for message in rest] == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("how", ["grace is over", "cancelled"])
async def test_a_handler_that_does_not_finish_is_cancelled_and_its_message_given_back(
    client: Client, queue: str, how: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(3))
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        if message.data == 0:
            return
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    consumer = client.consume(queue, handle, batch=3, grace_s=0.05)
    ending = asyncio.create_task(consumer.run())
    await asyncio.wait_for(running.wait(), 30)
    if how == "cancelled":
        ending.cancel()
        with suppress(asyncio.CancelledError):
            await ending
    else:
        consumer.stop()
        await asyncio.wait_for(ending, 30)
    assert cancelled.is_set()
    rest = await client.pop(queue, batch=9)
    assert [(message.data, message.retry_count) for message in rest] == [(1, 0), (2, 0)]


async def test_a_waiting_consumer_stops_at_once(client: Client, queue: str) -> None:
    consumer = client.consume(queue, print, concurrency=3, wait_s=120, grace_s=120)
    ending = asyncio.create_task(consumer.run())
    await wait_until_async(lambda: _is(len(consumer._pending_pops) == 3), 10, "all pops are under way")
    consumer.stop()
    consumer.stop()
    await asyncio.wait_for(ending, 30)
    with pytest.raises(RuntimeError, match="has run already"):
        await consumer


async def test_closing_the_client_stops_its_consumers(broker_url: str, queue: str) -> None:
    handled: list[int] = []
    running = asyncio.Event()

    async def handle(message: Message) -> None:
        running.set()
        await wait_until_async(lambda: _is(consumer.stopping), 30, "the consumer is told to stop")
        handled.append(message.data)

    async with Client(broker_url) as client:
        await client.push(queue, 1)
        consumer = client.consume(queue, handle)
        ending = asyncio.create_task(consumer.run())
        await asyncio.wait_for(running.wait(), 30)
    await asyncio.wait_for(ending, 1)
    assert handled == [1]


async def test_consumers_that_come_and_go_lose_nothing_and_keep_the_order(
    client: Client, broker_url: str, queue: str
) -> None:
    partitions, each = [f"p{n}" for n in range(5)], 40
    await client.push_many(NewMessage(queue, n, partition) for n in range(each) for partition in partitions)
    finished: dict[str, list[int]] = defaultdict(list)
    attempts: set[int] = set()
    chance = random.Random(7)

    async def handle(message: Message) -> None:
        attempts.add(message.retry_count)
        await client.options_of(queue)
        finished[message.partition].append(message.data)

    async def come_and_go() -> None:
        while sum(len(set(done)) for done in finished.values()) < each * len(partitions):
            consumer = client.consume(queue, handle, concurrency=2, batch=4, partitions=2, grace_s=0.005)
            running = asyncio.create_task(consumer.run())
            await asyncio.wait({running}, timeout=0.02 + chance.random() * 0.1)
            if chance.random() < 0.5:
                consumer.stop()
            else:
                running.cancel()
            await asyncio.wait({running})

    await asyncio.wait_for(asyncio.gather(come_and_go(), come_and_go()), 60)
    for partition in partitions:
        assert list(dict.fromkeys(finished[partition])) == list(range(each))
    assert attempts == {0}
    await wait_until_async(lambda: _empty(broker_url, queue), 10, "everything is acked")


async def test_plain_functions_run_in_threads_side_by_side(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n, f"p{n}") for n in range(2))
    together = threading.Barrier(2, timeout=30)
    threads: set[str] = set()

    def handle(message: Message) -> None:
        together.wait()  # is_temporary only if both handlers run at the same time
        threads.add(threading.current_thread().name)
        consumer.stop()

    consumer = client.consume(queue, handle, concurrency=2)
    await asyncio.wait_for(consumer.run(), 40)
    assert len(threads) == 2
    assert await client.pop(queue, batch=2, partitions=2) == []


async def test_what_a_thread_still_works_on_is_left_to_its_lease(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(2))
    running, end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        running.set()
        end.wait(60)

    consumer = client.consume(queue, handle, batch=2, grace_s=0.05)
    ending = asyncio.create_task(consumer.run())
    try:
        await asyncio.to_thread(running.wait, 30)
        consumer.stop()
        await asyncio.wait_for(ending, 30)
        assert await client.pop(queue, batch=2) == []  # nobody gets it while the thread has it
    finally:
        end.set()


async def test_batches_are_acked_whole_and_failed_in_part(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(4))
    seen: list[list[int]] = []

    async def handle(messages: list[Message]) -> None:
        seen.append([message.data for message in messages])
        if len(seen) == 1:
            raise RuntimeError("none of them")
        if len(seen) == 2:
            raise PartlyFailed([(messages[1], ValueError("only this one"))])
        consumer.stop()

    consumer = client.consume(queue, Batches(handle), batch=4)
    await asyncio.wait_for(consumer.run(), 30)
    assert seen == [[0, 1, 2, 3], [0, 1, 2, 3], [1]]
    assert await left(broker_url, queue) == (0, 0)


async def test_a_handler_cancelled_from_inside_has_failed_and_the_consumer_goes_on(
    client: Client, queue: str
) -> None:
    await client.push(queue, 1)
    counts: list[int] = []

    async def handle(message: Message) -> None:
        counts.append(message.retry_count)
        if message.retry_count == 0:
            raise asyncio.CancelledError
        consumer.stop()

    consumer = client.consume(queue, handle)
    await asyncio.wait_for(consumer.run(), 30)
    assert counts == [0, 1]


async def test_what_can_never_work_ends_the_consumer(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="batch"):
        await asyncio.wait_for(client.consume(queue, print, batch=0).run(), 30)
    with pytest.raises(ValueError, match="concurrency"):
        client.consume(queue, print, concurrency=0)


async def _empty(broker_url: str, queue: str) -> bool:
    return await left(broker_url, queue) == (0, 0)


async def _is(value: bool) -> bool:
    return value
