"""A broker that spills: what the client is told, and what it can do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.client import Client, ClientSettings, Message, NewMessage, Results, WrongState
from penstock.client.messages import PushResult
from tests.integration.client.served import QUICK, serving
from tests.integration.databases import new_database
from tests.waiting import wait_until_async

ANY_LOAD = 1e-9
"""With such a threshold a broker that has done anything at all counts as busy."""
POLLING = ClientSettings(queued_operation_behavior="poll", queued_operation_timeout_s=60)


@pytest_asyncio.fixture
async def database(postgres_url: str, template: str) -> AsyncIterator[str]:
    async with new_database(postgres_url, template) as url:
        yield url


@pytest_asyncio.fixture
async def busy(database: str) -> AsyncIterator[str]:
    async with serving(database, load_push=ANY_LOAD, load_ack=ANY_LOAD) as url:
        yield url


async def until_queued(client: Client, queue: str) -> tuple[list[int], Results[PushResult]]:
    """Push numbers until one is accepted for later: what was pushed, and what was said to the last."""
    numbers: list[int] = []
    results: list[Results[PushResult]] = []

    async def queued() -> bool:
        numbers.append(len(numbers))
        results.append(await client.push_many([NewMessage(queue, numbers[-1])]))
        return results[-1].queued is not None

    await wait_until_async(queued, 30, "a push is spilled")
    return numbers, results[-1]


async def test_what_is_accepted_for_later_comes_in_order_and_can_be_waited_for(busy: str, queue: str) -> None:
    async with Client(busy, QUICK) as client, Client(busy, POLLING) as polling:
        numbers, results = await until_queued(client, queue)
        assert results.queued is not None
        assert results.queued.reason in ("system_busy", "maintaining_order")
        [operation_id] = results.operation_ids
        operation = await client.operations.wait(operation_id, timeout_s=60)
        assert (operation.status, operation.queue, operation.items) == ("completed", queue, 1)
        [pushed] = operation.pushed
        assert pushed.message_id == results[0].message_id

        done = await polling.push_many(NewMessage(queue, n) for n in ("a", "b"))
        assert done.queued is None
        messages = await client.pop(queue, batch=1000)
        assert [message.data for message in messages] == [*numbers, "a", "b"]
        assert [message.id for message in messages[-2:]] == [result.message_id for result in done]

        async def acked_later() -> bool:
            [message] = messages[:1]
            del messages[:1]
            return (await client.ack(message)).operation_id is not None

        if not await acked_later():
            await wait_until_async(acked_later, 30, "an ack is spilled")
        assert all(result.success for result in await polling.ack_many(messages))
        assert await client.pop(queue) == []


async def test_consumers_and_buffers_work_with_a_broker_that_spills(busy: str, queue: str) -> None:
    handled: list[int] = []
    lost: list[Message] = []
    async with Client(busy, QUICK) as client:
        numbers, _ = await until_queued(client, queue)
        async with client.buffered(queue, size=7) as buffer:
            for n in range(len(numbers), len(numbers) + 50):
                await buffer.push(n)
                numbers.append(n)

        async def handle(message: Message) -> None:
            handled.append(message.data)

        async with client.consume(queue, handle, batch=5, on_lease_lost=lost.extend):

            async def complete() -> bool:
                return len(handled) >= len(numbers)

            await wait_until_async(complete, 60, "everything is handled")
        assert handled == numbers
        assert lost == []


async def test_an_operation_that_is_not_failed_cannot_be_retried_but_deleted(busy: str, queue: str) -> None:
    async with Client(busy, QUICK) as client:
        _, results = await until_queued(client, queue)
        [operation_id] = results.operation_ids
        await client.operations.wait(operation_id, timeout_s=60)
        with pytest.raises(WrongState):
            await client.operations.retry(operation_id)
        page = await client.operations.list(status="completed", queue=queue, limit=1)
        assert [one.status for one in page.operations] == ["completed"]
        assert page.next is not None
        assert "load" in await client.operations.stats()
        await client.operations.delete(operation_id)
        listed = (await client.operations.list(queue=queue)).operations
        assert operation_id not in {one.operation_id for one in listed}
