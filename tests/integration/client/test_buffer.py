"""Buffered pushes: by size, by age, at the end, in order, and never lost in silence."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from penstock.client import Client, ClientSettings, FlushFailed
from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until_async

LONG = 600.0


async def stored(client: Client, queue: str, group: str = "reader", partition: str = "Default") -> list[int]:
    """Everything in a partition, in order, without disturbing anybody."""
    popped = await client.pop(queue, batch=1000, partition=partition, group=group)
    if popped:
        await client.retry_many(popped)
    return [message.data for message in popped]


async def test_a_full_buffer_is_sent(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=3, interval_s=LONG)
    for n in range(7):
        await buffer.push(n)
    assert len(buffer) == 1
    assert await stored(client, queue) == [0, 1, 2, 3, 4, 5]
    await buffer.close()
    assert await stored(client, queue) == list(range(7))
    with pytest.raises(RuntimeError, match="closed"):
        await buffer.push(8)


async def test_an_old_buffer_is_sent(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=1000, interval_s=0.05)
    for round_ in range(2):
        await buffer.push(round_)

        async def empty() -> bool:
            return len(buffer) == 0

        await wait_until_async(empty, 20, "the buffer is sent by age")
    assert await stored(client, queue) == [0, 1]


async def test_leaving_the_block_or_closing_the_client_sends_the_rest(broker_url: str, queue: str) -> None:
    async with Client(broker_url) as client:
        async with client.buffered(queue, interval_s=LONG) as buffer:
            await buffer.push(0)
        assert await stored(client, queue) == [0]
        other = client.buffered(queue, interval_s=LONG)
        await other.push(1)
    async with Client(broker_url) as client:
        assert await stored(client, queue) == [0, 1]


async def test_many_tasks_share_a_buffer_and_each_keeps_its_order(client: Client, queue: str) -> None:
    async with client.buffered(queue, size=7, interval_s=0.01) as buffer:

        async def produce(partition: str) -> None:
            for n in range(40):
                await buffer.push(n, partition=partition)

        await asyncio.gather(*(produce(f"p{n}") for n in range(4)))
    for n in range(4):
        assert await stored(client, queue, partition=f"p{n}") == list(range(40))


async def test_what_is_added_while_flushes_overlap_is_sent_too(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=1000, interval_s=LONG)
    for n in range(3):
        await buffer.push(n)
    flushes = [asyncio.create_task(buffer.flush()) for _ in range(2)]
    n = 3
    while (await asyncio.wait(flushes, timeout=0.001))[1]:
        await buffer.push(n)
        if n < 20:
            flushes.append(asyncio.create_task(buffer.flush()))
        n += 1
    await buffer.close()
    assert await stored(client, queue) == list(range(n))


async def test_what_cannot_be_pushed_is_handed_back_in_order(broker_url: str, queue: str) -> None:
    nobody = f"http://127.0.0.1:{any_free_port()}"
    async with Client(nobody, ClientSettings(retry_attempts=1)) as away:
        buffer = away.buffered(queue, size=3, interval_s=LONG)
        await buffer.push(0)
        await buffer.push(1)
        with pytest.raises(FlushFailed) as failed:
            await buffer.push(2)
        assert [message.payload for message in failed.value.unsent] == [0, 1, 2]
        assert "3 buffered messages" in failed.value.detail
        assert len(buffer) == 0
        await buffer.close()
    async with Client(broker_url) as client:
        await client.push_many(failed.value.unsent)
        await client.push_many(failed.value.unsent)  # they have ids: twice is once
        assert await stored(client, queue) == [0, 1, 2]


async def test_a_failure_in_the_background_is_raised_by_the_next_call(queue: str) -> None:
    nobody = f"http://127.0.0.1:{any_free_port()}"
    client = Client(nobody, ClientSettings(retry_attempts=1))
    buffer = client.buffered(queue, size=100, interval_s=0.01)
    await buffer.push(0)

    async def failed() -> bool:
        return buffer._failure is not None

    await wait_until_async(failed, 20, "the flush by age fails")
    with pytest.raises(FlushFailed) as raised:
        await buffer.push(1)
    assert [message.payload for message in raised.value.unsent] == [0, 1]
    await buffer.push(2)
    with pytest.raises(FlushFailed) as at_the_end:
        await client.close()
    assert [message.payload for message in at_the_end.value.unsent] == [2]


async def test_one_message_that_is_refused_is_handed_back_alone(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=3, interval_s=LONG)
    await buffer.push(0)
    await buffer.push(1, trace_id="no trace id")
    with pytest.raises(FlushFailed) as failed:
        await buffer.push(2)
    assert [message.payload for message in failed.value.unsent] == [1]
    assert await stored(client, queue) == [0, 2]


async def test_what_a_full_queue_refuses_is_sent_again_in_order(client: Client, queue: str) -> None:
    await client.configure(queue, {"maxSize": 2})
    buffer = client.buffered(queue, size=5, interval_s=LONG)
    for n in range(4):
        await buffer.push(n)
    filling = asyncio.create_task(buffer.flush())
    drained: list[int] = []

    async def drain() -> bool:
        drained.extend(message.data for message in await client.pop(queue, batch=10, auto_ack=True))
        return len(drained) == 4

    await wait_until_async(drain, 20, "all are through")
    await filling
    assert drained == [0, 1, 2, 3]


async def test_a_payload_that_is_no_json_is_refused_at_once(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, interval_s=LONG)
    with pytest.raises(TypeError):
        await buffer.push(object())
    assert len(buffer) == 0


async def test_a_flush_that_is_cancelled_loses_and_doubles_nothing(
    client: Client, broker_url: str, queue: str
) -> None:
    buffer = client.buffered(queue, size=100, interval_s=LONG)
    for n in range(3):
        await buffer.push(n)
    flushing = asyncio.create_task(buffer.flush())

    async def arrived() -> bool:
        async with httpx.AsyncClient() as plain:
            told = await plain.get(f"{broker_url}/api/v1/resources/queues/{queue}")
        return told.status_code == 200

    await wait_until_async(arrived, 20, "the broker has the push")
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    await buffer.close()
    assert await stored(client, queue) == [0, 1, 2]
