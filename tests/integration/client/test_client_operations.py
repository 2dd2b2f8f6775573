"""The client with an overloaded broker, which defers pushes and acks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.client import Client, ClientSettings, Message, NewMessage, Results, WrongState
from penstock.client.messages import PushResult
from tests.integration.client.broker_server import FAST_RETRIES, run_broker
from tests.waiting import wait_until_async

MIN_THRESHOLD = 1e-9
"""With this threshold a broker is overloaded after its first request."""
POLL = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=60)


@pytest_asyncio.fixture
async def overloaded_url(database_url: str) -> AsyncIterator[str]:
    async with run_broker(database_url, load_push=MIN_THRESHOLD, load_ack=MIN_THRESHOLD) as url:
        yield url


async def push_until_deferred(client: Client, queue: str) -> tuple[list[int], Results[PushResult]]:
    """Push numbers until one is deferred; return the numbers and the results of the last push."""
    numbers: list[int] = []
    results: list[Results[PushResult]] = []

    async def is_deferred() -> bool:
        numbers.append(len(numbers))
        results.append(await client.push_many([NewMessage(queue, numbers[-1])]))
        return results[-1].queued is not None

    await wait_until_async(is_deferred, 30, "a push is deferred")
    return numbers, results[-1]


async def test_deferred_pushes_keep_their_order_and_can_be_awaited(overloaded_url: str, queue: str) -> None:
    async with Client(overloaded_url, FAST_RETRIES) as client, Client(overloaded_url, POLL) as polling_client:
        numbers, results = await push_until_deferred(client, queue)
        assert results.queued is not None
        assert results.queued.reason in ("system_busy", "maintaining_order")
        [operation_id] = results.operation_ids
        operation = await client.operations.wait(operation_id, timeout_s=60)
        assert (operation.status, operation.queue, operation.items) == ("completed", queue, 1)
        [pushed] = operation.pushed
        assert pushed.message_id == results[0].message_id

        executed = await polling_client.push_many(NewMessage(queue, n) for n in ("a", "b"))
        assert executed.queued is None
        messages = await client.pop(queue, batch=1000)
        assert [message.data for message in messages] == [*numbers, "a", "b"]
        assert [message.id for message in messages[-2:]] == [result.message_id for result in executed]

        async def is_ack_deferred() -> bool:
            [message] = messages[:1]
            del messages[:1]
            return (await client.ack(message)).operation_id is not None

        if not await is_ack_deferred():
            await wait_until_async(is_ack_deferred, 30, "an ack is deferred")
        assert all(result.success for result in await polling_client.ack_many(messages))
        assert await client.pop(queue) == []


async def test_consumers_and_buffers_work_with_an_overloaded_broker(overloaded_url: str, queue: str) -> None:
    handled: list[int] = []
    lost: list[Message] = []
    async with Client(overloaded_url, FAST_RETRIES) as client:
        numbers, _ = await push_until_deferred(client, queue)
        async with client.buffered(queue, size=7) as buffer:
            for n in range(len(numbers), len(numbers) + 50):
                await buffer.push(n)
                numbers.append(n)

        async def handle(message: Message) -> None:
            handled.append(message.data)

        async with client.consume(queue, handle, batch=5, on_lease_lost=lost.extend):

            async def is_complete() -> bool:
                return len(handled) >= len(numbers)

            await wait_until_async(is_complete, 60, "all messages are handled")
        assert handled == numbers
        assert lost == []


async def test_a_completed_operation_can_be_deleted_but_not_retried(overloaded_url: str, queue: str) -> None:
    async with Client(overloaded_url, FAST_RETRIES) as client:
        _, results = await push_until_deferred(client, queue)
        [operation_id] = results.operation_ids
        await client.operations.wait(operation_id, timeout_s=60)
        with pytest.raises(WrongState):
            await client.operations.retry(operation_id)
        page = await client.operations.list(status="completed", queue=queue, limit=1)
        assert [listed.status for listed in page.operations] == ["completed"]
        assert page.next is not None
        assert "load" in await client.operations.stats()
        await client.operations.delete(operation_id)
        remaining = (await client.operations.list(queue=queue)).operations
        assert operation_id not in {operation.operation_id for operation in remaining}
