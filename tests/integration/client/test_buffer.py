"""Buffered pushes: sent when full, after an interval and at the end; failures return the messages."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from penstock.client import Client, ClientSettings, FlushFailed
from penstock.embedded.servers.ports import any_free_port
from tests.waiting import wait_until_async

NO_INTERVAL_S = 600.0
"""An interval that does not end within a test."""


async def stored_payloads(
    client: Client, queue: str, group: str = "reader", partition: str = "Default"
) -> list[int]:
    """Return all payloads of a partition in order, and leave its messages as they were."""
    popped = await client.pop(queue, batch=1000, partition=partition, group=group)
    if popped:
        await client.retry_many(popped)
    return [message.data for message in popped]


async def test_a_full_buffer_is_sent(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=3, interval_s=NO_INTERVAL_S)
    for n in range(7):
        await buffer.push(n)
    assert len(buffer) == 1
    assert await stored_payloads(client, queue) == [0, 1, 2, 3, 4, 5]
    await buffer.close()
    assert await stored_payloads(client, queue) == list(range(7))
    with pytest.raises(RuntimeError, match="closed"):
        await buffer.push(8)


async def test_a_buffer_is_sent_after_its_interval(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=1000, interval_s=0.05)
    for n in range(2):
        await buffer.push(n)

        async def is_empty() -> bool:
            return len(buffer) == 0

        await wait_until_async(is_empty, 20, "the buffer is sent after its interval")
    assert await stored_payloads(client, queue) == [0, 1]


async def test_the_end_of_the_block_and_closing_the_client_send_the_rest(broker_url: str, queue: str) -> None:
    async with Client(broker_url) as client:
        async with client.buffered(queue, interval_s=NO_INTERVAL_S) as buffer:
            await buffer.push(0)
        assert await stored_payloads(client, queue) == [0]
        second_buffer = client.buffered(queue, interval_s=NO_INTERVAL_S)
        await second_buffer.push(1)
    async with Client(broker_url) as client:
        assert await stored_payloads(client, queue) == [0, 1]


async def test_many_tasks_share_a_buffer_and_each_keeps_its_order(client: Client, queue: str) -> None:
    async with client.buffered(queue, size=7, interval_s=0.01) as buffer:

        async def produce(partition: str) -> None:
            for n in range(40):
                await buffer.push(n, partition=partition)

        await asyncio.gather(*(produce(f"p{n}") for n in range(4)))
    for n in range(4):
        assert await stored_payloads(client, queue, partition=f"p{n}") == list(range(40))


async def test_messages_added_during_overlapping_flushes_are_sent_too(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=1000, interval_s=NO_INTERVAL_S)
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
    assert await stored_payloads(client, queue) == list(range(n))


async def test_a_failed_flush_returns_the_unsent_messages_in_order(broker_url: str, queue: str) -> None:
    closed_url = f"http://127.0.0.1:{any_free_port()}"
    async with Client(closed_url, ClientSettings(retry_attempts=1)) as disconnected_client:
        buffer = disconnected_client.buffered(queue, size=3, interval_s=NO_INTERVAL_S)
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
        await client.push_many(failed.value.unsent)  # their transaction ids make the second push a duplicate
        assert await stored_payloads(client, queue) == [0, 1, 2]


async def test_a_failed_interval_flush_is_raised_by_the_next_call(
    queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed_url = f"http://127.0.0.1:{any_free_port()}"
    client = Client(closed_url, ClientSettings(retry_attempts=1))
    buffer = client.buffered(queue, size=100, interval_s=0.01)
    await buffer.push(0)

    async def has_failed() -> bool:
        return "failed and stay in the buffer" in caplog.text

    await wait_until_async(has_failed, 20, "the flush after the interval fails")
    with pytest.raises(FlushFailed) as raised:
        await buffer.push(1)
    assert [message.payload for message in raised.value.unsent] == [0, 1]
    await buffer.push(2)
    with pytest.raises(FlushFailed) as raised_at_close:
        await client.close()
    assert [message.payload for message in raised_at_close.value.unsent] == [2]


async def test_a_refused_message_is_returned_alone(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, size=3, interval_s=NO_INTERVAL_S)
    await buffer.push(0)
    await buffer.push(1, trace_id="no trace id")
    with pytest.raises(FlushFailed) as failed:
        await buffer.push(2)
    assert [message.payload for message in failed.value.unsent] == [1]
    assert await stored_payloads(client, queue) == [0, 2]


async def test_messages_that_a_full_queue_refuses_are_retried_in_order(client: Client, queue: str) -> None:
    await client.configure(queue, {"maxSize": 2})
    buffer = client.buffered(queue, size=5, interval_s=NO_INTERVAL_S)
    for n in range(4):
        await buffer.push(n)
    flush = asyncio.create_task(buffer.flush())
    drained: list[int] = []

    async def drain() -> bool:
        drained.extend(message.data for message in await client.pop(queue, batch=10, auto_ack=True))
        return len(drained) == 4

    await wait_until_async(drain, 20, "all messages are popped")
    await flush
    assert drained == [0, 1, 2, 3]


async def test_a_payload_that_cannot_be_encoded_is_refused_at_once(client: Client, queue: str) -> None:
    buffer = client.buffered(queue, interval_s=NO_INTERVAL_S)
    with pytest.raises(TypeError):
        await buffer.push(object())
    assert len(buffer) == 0


async def test_a_cancelled_flush_neither_loses_nor_duplicates_messages(
    client: Client, broker_url: str, queue: str
) -> None:
    buffer = client.buffered(queue, size=100, interval_s=NO_INTERVAL_S)
    for n in range(3):
        await buffer.push(n)
    flush = asyncio.create_task(buffer.flush())

    async def queue_exists() -> bool:
        async with httpx.AsyncClient() as http:
            response = await http.get(f"{broker_url}/api/v1/resources/queues/{queue}")
        return response.status_code == 200

    await wait_until_async(queue_exists, 20, "the broker has the push")
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    await buffer.close()
    assert await stored_payloads(client, queue) == [0, 1, 2]
