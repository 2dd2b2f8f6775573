"""Lost responses: which requests the client repeats, and which errors are uncertain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.client import (
    Client,
    ClientSettings,
    LeaseLost,
    Message,
    NewMessage,
    NoAnswer,
    TransactionFailed,
)
from tests.deadlines import deadline_s
from tests.integration.client.broker_server import FAST_RETRIES, LossyProxy


@pytest_asyncio.fixture
async def proxy(broker_url: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(broker_url) as lossy_proxy:
        yield lossy_proxy


@pytest_asyncio.fixture
async def proxied_client(proxy: LossyProxy) -> AsyncIterator[Client]:
    """A client that connects through the proxy."""
    async with Client(proxy.url, FAST_RETRIES) as client:
        yield client


async def test_a_push_with_a_lost_response_is_stored_once(
    client: Client, proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    proxy.drop_responses(2)
    results = await proxied_client.push_many(NewMessage(queue, n) for n in range(3))
    assert proxy.dropped == 2
    assert [result.status for result in results] == ["queued"] * 3
    popped = await client.pop(queue, batch=10)
    assert [message.data for message in popped] == [0, 1, 2]
    assert [message.id for message in popped] == [result.message_id for result in results]


async def test_a_repeated_push_with_the_callers_id_is_a_duplicate(
    proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    proxy.drop_responses()
    assert (await proxied_client.push(queue, 1, transaction_id="mine")).status == "duplicate"


async def test_a_push_without_an_id_is_not_repeated(client: Client, proxy: LossyProxy, queue: str) -> None:
    async with Client(proxy.url, ClientSettings(make_transaction_ids=False)) as client_without_ids:
        proxy.drop_responses()
        with pytest.raises(NoAnswer) as lost:
            await client_without_ids.push(queue, 1)
        assert lost.value.uncertain
    assert [message.data for message in await client.pop(queue, batch=10)] == [1]


async def test_a_repeated_ack_with_a_lost_response_is_uncertain(
    client: Client, proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    await proxied_client.push_many(NewMessage(queue, n) for n in range(3))
    first, *others = await proxied_client.pop(queue, batch=3)
    proxy.drop_responses()
    with pytest.raises(LeaseLost) as lost:
        await proxied_client.ack(first)
    assert lost.value.uncertain
    proxy.drop_responses()
    assert [(r.success, r.uncertain) for r in await proxied_client.ack_many(others)] == [
        (False, True),
        (False, True),
    ]
    assert await client.pop(queue, batch=3) == []


async def test_a_transaction_with_a_lost_response_is_executed_once(
    client: Client, proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    await proxied_client.push(queue, "in")
    [message] = await proxied_client.pop(queue)
    proxy.drop_responses()
    with pytest.raises(TransactionFailed) as lost:
        await proxied_client.transaction().ack(message).push(f"{queue}-out", 1).commit()
    assert (lost.value.uncertain, lost.value.step) == (True, 0)
    proxy.drop_responses()
    repeated = await proxied_client.transaction().push(f"{queue}-out", 2).commit()
    assert [step.duplicate for step in repeated.results] == [True]
    assert [message.data for message in await client.pop(f"{queue}-out", batch=9)] == [1, 2]


async def test_messages_of_a_lost_pop_response_return_after_their_lease(
    proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    await proxied_client.configure(queue, {"leaseTime": 0.5})
    await proxied_client.push_many(NewMessage(queue, n) for n in range(2))
    proxy.drop_responses()
    popped = await proxied_client.pop(queue, batch=2, wait=True, timeout_s=30)
    assert proxy.dropped == 1
    assert [message.data for message in popped] == [0]  # one at a time after a lease without acks


async def test_a_pop_with_auto_ack_is_not_repeated(
    proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    await proxied_client.push_many(NewMessage(queue, n) for n in range(2))
    proxy.drop_responses()
    with pytest.raises(NoAnswer) as lost:
        await proxied_client.pop(queue, auto_ack=True)
    assert lost.value.uncertain
    assert [message.data for message in await proxied_client.pop(queue, auto_ack=True)] == [1]


async def test_a_consumer_gets_all_messages_through_a_proxy_that_drops_responses(
    proxied_client: Client, proxy: LossyProxy, queue: str
) -> None:
    await proxied_client.configure(queue, {"leaseTime": 1})
    count = 20
    handled: list[int] = []
    complete = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message.data)
        if message.data % 7 == 0:
            proxy.drop_responses()
        if set(handled) == set(range(count)):
            complete.set()

    async with proxied_client.buffered(queue, size=3) as buffer:
        for n in range(count):
            await buffer.push(n)
            if n % 5 == 0:
                proxy.drop_responses()
    async with proxied_client.consume(queue, handle, batch=4):
        await asyncio.wait_for(complete.wait(), deadline_s(60))
    assert proxy.dropped >= 5
    first_deliveries = list(dict.fromkeys(handled))
    assert first_deliveries == list(range(count))
