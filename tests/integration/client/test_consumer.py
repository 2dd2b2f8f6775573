"""Consumers: order, failures, leases, and graceful stops."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

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
from tests.deadlines import deadline_s
from tests.waiting import wait_until_async


async def depth_and_running(broker_url: str, queue: str) -> tuple[int, int]:
    """Return the number of waiting and of leased messages."""
    async with httpx.AsyncClient() as http:
        description = (await http.get(f"{broker_url}/api/v1/resources/queues/{queue}")).json()
    return description["depth"], description["running"]


async def lease_expiry(broker_url: str, message: Message) -> datetime:
    """Return when the lease of a message expires."""
    url = f"{broker_url}/api/v1/messages/{message.partition_id}/{message.transaction_id}"
    async with httpx.AsyncClient() as http:
        description = (await http.get(url)).json()
    return datetime.fromisoformat(description["leaseExpiresAt"])


async def test_concurrent_handlers_keep_the_order_of_every_partition(
    client: Client, broker_url: str, queue: str
) -> None:
    partitions, per_partition = [f"p{n}" for n in range(6)], 12
    await client.push_many(
        NewMessage(queue, n, partition) for n in range(per_partition) for partition in partitions
    )
    handled: dict[str, list[int]] = defaultdict(list)
    busy_partitions: set[str] = set()
    max_busy = 0
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal max_busy
        assert message.partition not in busy_partitions
        busy_partitions.add(message.partition)
        max_busy = max(max_busy, len(busy_partitions))
        await client.options_of(queue)  # other handlers run meanwhile
        busy_partitions.remove(message.partition)
        handled[message.partition].append(message.data)
        if sum(map(len, handled.values())) == per_partition * len(partitions):
            done.set()

    async with client.consume(queue, handle, concurrency=4, batch=5, partitions=2):
        await asyncio.wait_for(done.wait(), deadline_s(30))
    assert handled == {partition: list(range(per_partition)) for partition in partitions}
    assert max_busy > 1
    assert await depth_and_running(broker_url, queue) == (0, 0)


async def test_no_message_overtakes_a_failed_one(client: Client, broker_url: str, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(5))
    attempts: list[tuple[int, int]] = []

    async def handle(message: Message) -> None:
        attempts.append((message.data, message.retry_count))
        if message.data == 2 and message.retry_count < 2:
            raise ValueError("not yet")
        if message.data == 4:
            consumer.stop()

    consumer = client.consume(queue, handle, batch=5)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    assert attempts == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)]
    assert await depth_and_running(broker_url, queue) == (0, 0)


async def test_an_unordered_consumer_handles_the_rest_at_once(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(3))
    attempts: list[int] = []

    async def handle(message: Message) -> None:
        attempts.append(message.data)
        if len(attempts) == 4:
            consumer.stop()
        if message.data == 0 and message.retry_count == 0:
            raise ValueError("not yet")

    consumer = client.consume(queue, handle, batch=3, ordered=False)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    assert attempts == [0, 1, 2, 0]


async def test_the_dead_letter_has_the_error_of_the_handler(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"retryLimit": 0})
    await client.push(queue, 1)

    def handle(message: Message) -> None:
        consumer.stop()
        raise ValueError("no such customer")

    consumer = client.consume(queue, handle)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    async with httpx.AsyncClient() as http:
        response = await http.get(f"{broker_url}/api/v1/dlq", params={"queue": queue})
    errors = [dead_letter["errorMessage"] for dead_letter in response.json()["messages"]]
    assert errors == ["ValueError: no such customer"]


async def test_a_consumer_renews_the_lease_of_a_long_handler(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"leaseTime": 1.2})
    await client.push_many(NewMessage(queue, n) for n in range(2))
    handled: list[tuple[int, int]] = []
    lost: list[Message] = []

    async def handle(message: Message) -> None:
        if message.data == 0:
            first_expiry = await lease_expiry(broker_url, message)

            async def is_extended() -> bool:
                extension = await lease_expiry(broker_url, message) - first_expiry
                return extension.total_seconds() > 2 * 1.2

            await wait_until_async(is_extended, 30, "renewals extend the lease by more than twice its time")
        handled.append((message.data, message.retry_count))
        if message.data == 1:
            consumer.stop()

    consumer = client.consume(queue, handle, batch=2, on_lease_lost=lost.extend)
    await asyncio.wait_for(consumer.run(), deadline_s(60))
    assert handled == [(0, 0), (1, 0)]
    assert lost == []
    assert await depth_and_running(broker_url, queue) == (0, 0)


async def test_a_lost_lease_is_reported_and_the_consumer_continues(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"leaseTime": 1.2})
    await client.push_many(NewMessage(queue, n) for n in range(3))
    handled: list[int] = []
    lost: list[list[int]] = []

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if len(handled) == 1:

            async def is_expired() -> bool:
                return (await depth_and_running(broker_url, queue))[1] == 0

            await wait_until_async(is_expired, 30, "the lease expires")
        if handled.count(2) == 1:
            consumer.stop()

    def on_lease_lost(messages: Sequence[Message]) -> None:
        lost.append([message.data for message in messages])

    consumer = client.consume(queue, handle, batch=3, auto_renew=False, on_lease_lost=on_lease_lost)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    assert lost == [[0]]
    assert handled == [0, 0, 1, 2]  # neither 1 nor 2 was started under the lost lease
    assert await depth_and_running(broker_url, queue) == (0, 0)


async def test_a_lease_ended_by_an_operator_is_reported_while_the_handler_runs(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"leaseTime": 0.6})
    await client.push(queue, 1)
    started, lost = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await lost.wait()

    async with client.consume(queue, handle, group="g", on_lease_lost=lambda messages: lost.set()):
        await asyncio.wait_for(started.wait(), deadline_s(30))
        async with httpx.AsyncClient() as http:
            response = await http.post(
                f"{broker_url}/api/v1/consumer-groups/g/queues/{queue}/seek", json={"toEnd": True}
            )
        assert response.status_code == 200
        await asyncio.wait_for(lost.wait(), deadline_s(30))


async def test_stop_finishes_the_running_handler_and_returns_the_rest(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(4))
    started, may_finish = asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    async def handle(message: Message) -> None:
        started.set()
        await may_finish.wait()
        handled.append(message.data)

    consumer = client.consume(queue, handle, batch=4)
    run_task = asyncio.create_task(consumer.run())
    await asyncio.wait_for(started.wait(), deadline_s(30))
    consumer.stop()
    may_finish.set()
    await asyncio.wait_for(run_task, deadline_s(30))
    assert handled == [0]
    returned = await client.pop(queue, batch=9)
    assert [(message.data, message.retry_count) for message in returned] == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("reason", ["grace expired", "cancelled"])
async def test_a_cancelled_handler_returns_its_message_without_counting_an_attempt(
    client: Client, queue: str, reason: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(3))
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        if message.data == 0:
            return
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    consumer = client.consume(queue, handle, batch=3, grace_s=0.05)
    run_task = asyncio.create_task(consumer.run())
    await asyncio.wait_for(started.wait(), deadline_s(30))
    if reason == "cancelled":
        run_task.cancel()
        with suppress(asyncio.CancelledError):
            await run_task
    else:
        consumer.stop()
        await asyncio.wait_for(run_task, deadline_s(30))
    assert cancelled.is_set()
    returned = await client.pop(queue, batch=9)
    assert [(message.data, message.retry_count) for message in returned] == [(1, 0), (2, 0)]


async def test_a_waiting_consumer_stops_at_once(client: Client, queue: str) -> None:
    consumer = client.consume(queue, print, concurrency=3, wait_s=120, grace_s=120)
    run_task = asyncio.create_task(consumer.run())

    async def all_pops_wait() -> bool:
        return len(consumer._pops.pending) == 3

    await wait_until_async(all_pops_wait, 10, "all pops wait")
    consumer.stop()
    consumer.stop()
    await asyncio.wait_for(run_task, deadline_s(30))
    with pytest.raises(RuntimeError, match="has already run"):
        await consumer


async def test_closing_the_client_stops_its_consumers(broker_url: str, queue: str) -> None:
    handled: list[int] = []
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()

        async def is_stopping() -> bool:
            return consumer.stopping

        await wait_until_async(is_stopping, 30, "the consumer stops")
        handled.append(message.data)

    async with Client(broker_url) as client:
        await client.push(queue, 1)
        consumer = client.consume(queue, handle)
        run_task = asyncio.create_task(consumer.run())
        await asyncio.wait_for(started.wait(), deadline_s(30))
    await asyncio.wait_for(run_task, deadline_s(1))
    assert handled == [1]


async def test_restarted_consumers_lose_no_message_and_keep_the_order(
    client: Client, broker_url: str, queue: str
) -> None:
    partitions, per_partition = [f"p{n}" for n in range(5)], 40
    await client.push_many(
        NewMessage(queue, n, partition) for n in range(per_partition) for partition in partitions
    )
    finished: dict[str, list[int]] = defaultdict(list)
    retry_counts: set[int] = set()
    generator = random.Random(7)

    async def handle(message: Message) -> None:
        retry_counts.add(message.retry_count)
        await client.options_of(queue)
        finished[message.partition].append(message.data)

    async def run_and_stop_repeatedly() -> None:
        while sum(len(set(payloads)) for payloads in finished.values()) < per_partition * len(partitions):
            consumer = client.consume(queue, handle, concurrency=2, batch=4, partitions=2, grace_s=0.005)
            run_task = asyncio.create_task(consumer.run())
            await asyncio.wait({run_task}, timeout=0.02 + generator.random() * 0.1)
            if generator.random() < 0.5:
                consumer.stop()
            else:
                run_task.cancel()
            await asyncio.wait({run_task})

    await asyncio.wait_for(
        asyncio.gather(run_and_stop_repeatedly(), run_and_stop_repeatedly()), deadline_s(60)
    )
    for partition in partitions:
        assert list(dict.fromkeys(finished[partition])) == list(range(per_partition))
    assert retry_counts == {0}

    async def is_empty() -> bool:
        return await depth_and_running(broker_url, queue) == (0, 0)

    await wait_until_async(is_empty, 10, "all messages are acked")


async def test_synchronous_handlers_run_in_parallel_threads(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n, f"p{n}") for n in range(2))
    both_running = threading.Barrier(2, timeout=deadline_s(30))
    threads: set[str] = set()

    def handle(message: Message) -> None:
        both_running.wait()  # times out unless both handlers run at the same time
        threads.add(threading.current_thread().name)
        consumer.stop()

    consumer = client.consume(queue, handle, concurrency=2)
    await asyncio.wait_for(consumer.run(), deadline_s(40))
    assert len(threads) == 2
    assert await client.pop(queue, batch=2, partitions=2) == []


async def test_a_message_of_a_running_thread_stays_leased(client: Client, queue: str) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(2))
    started, may_finish = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        started.set()
        may_finish.wait(deadline_s(60))

    consumer = client.consume(queue, handle, batch=2, grace_s=0.05)
    run_task = asyncio.create_task(consumer.run())
    try:
        await asyncio.to_thread(started.wait, 30)
        consumer.stop()
        await asyncio.wait_for(run_task, deadline_s(30))
        assert await client.pop(queue, batch=2) == []  # no consumer gets it while the thread runs
    finally:
        may_finish.set()


async def test_a_batch_is_acked_as_a_whole_or_failed_in_part(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(4))
    batches: list[list[int]] = []

    async def handle(messages: list[Message]) -> None:
        batches.append([message.data for message in messages])
        if len(batches) == 1:
            raise RuntimeError("all failed")
        if len(batches) == 2:
            raise PartlyFailed([(messages[1], ValueError("one failed"))])
        consumer.stop()

    consumer = client.consume(queue, Batches(handle), batch=4)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    assert batches == [[0, 1, 2, 3], [0, 1, 2, 3], [1]]
    assert await depth_and_running(broker_url, queue) == (0, 0)


async def test_a_handler_that_cancels_itself_fails_and_the_consumer_continues(
    client: Client, queue: str
) -> None:
    await client.push(queue, 1)
    retry_counts: list[int] = []

    async def handle(message: Message) -> None:
        retry_counts.append(message.retry_count)
        if message.retry_count == 0:
            raise asyncio.CancelledError
        consumer.stop()

    consumer = client.consume(queue, handle)
    await asyncio.wait_for(consumer.run(), deadline_s(30))
    assert retry_counts == [0, 1]


async def test_an_invalid_request_ends_the_consumer(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="batch"):
        await asyncio.wait_for(client.consume(queue, print, batch=0).run(), deadline_s(30))
    with pytest.raises(ValueError, match="concurrency"):
        client.consume(queue, print, concurrency=0)


async def test_a_task_runs_a_consumer_until_it_is_stopped(client: Client, queue: str) -> None:
    handled: asyncio.Queue[object] = asyncio.Queue()
    consumer = client.consume(queue, lambda message: handled.put(message.data))
    task = asyncio.create_task(consumer)
    await client.push(queue, "hello")
    assert await handled.get() == "hello"
    consumer.stop()
    await task
    assert await client.pop(queue) == []


async def test_a_failing_task_group_ends_its_consumers_and_returns_their_messages(
    client: Client, queue: str
) -> None:
    started = asyncio.Event()

    async def handle(message: Message) -> None:
        started.set()
        await asyncio.Event().wait()

    async def consume_and_fail() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(client.consume(queue, handle))
            await started.wait()
            raise LookupError

    await client.push(queue, "hello")
    with pytest.raises(ExceptionGroup) as failure:
        await consume_and_fail()
    assert failure.group_contains(LookupError)
    [message] = await client.pop(queue)
    assert (message.data, message.retry_count) == ("hello", 0)
