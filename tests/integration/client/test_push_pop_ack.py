"""Push, pop, and the outcomes of a message: ack, nack, retry, dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import msgspec
import pytest

from penstock.client import (
    AnyQueue,
    Client,
    ClientError,
    ClientSettings,
    InvalidRequest,
    LeaseLost,
    Message,
    NewMessage,
    NoAnswer,
    NotFound,
    Overloaded,
)
from penstock.embedded.servers.ports import any_free_port


@dataclass
class Order:
    id: int
    due: datetime


async def pop_one(client: Client, queue: str) -> Message:
    [message] = await client.pop(queue, wait=True, timeout_s=10)
    return message


async def dead_letters(broker_url: str, queue: str) -> list[tuple[object, str]]:
    async with httpx.AsyncClient() as http:
        page = (await http.get(f"{broker_url}/api/v1/dlq", params={"queue": queue})).json()
    return [(dead_letter["data"], dead_letter["errorMessage"]) for dead_letter in page["messages"]]


async def test_a_popped_message_equals_the_pushed_one(client: Client, queue: str) -> None:
    trace, order = uuid4(), Order(7, datetime(2026, 1, 2, tzinfo=UTC))
    pushed = await client.push(queue, order, partition="eu", transaction_id="order-7", trace_id=trace)
    assert (pushed.status, pushed.transaction_id, pushed.queue) == ("queued", "order-7", queue)
    message = await pop_one(client, queue)
    assert message.into(Order) == order
    assert (message.id, message.partition_id) == (pushed.message_id, pushed.partition_id)
    assert (message.queue, message.partition, message.trace_id) == (queue, "eu", trace)
    assert message.retry_count == 0
    assert datetime.now(UTC) - message.created_at < timedelta(minutes=5)
    assert (await client.ack(message)).lease_released
    assert await client.pop(queue) == []


async def test_a_second_push_of_a_transaction_id_is_a_duplicate(client: Client, queue: str) -> None:
    first = await client.push(queue, 1, transaction_id="same")
    second = await client.push(queue, 2, transaction_id="same")
    assert (first.status, second.status) == ("queued", "duplicate")
    assert second.message_id == first.message_id


async def test_each_of_many_pushed_messages_has_its_own_result(client: Client, queue: str) -> None:
    results = await client.push_many(
        [
            NewMessage(queue, 1, transaction_id="a"),
            NewMessage(queue, 2, transaction_id="a"),
            NewMessage(queue, 3, trace_id="no trace id"),
            NewMessage(queue, 4),
        ]
    )
    assert [result.status for result in results] == ["queued", "duplicate", "failed", "queued"]
    assert "uuid" in str(results[2].error).lower()
    assert [message.data for message in await client.pop(queue, batch=10)] == [1, 4]


async def test_the_broker_generates_ids_if_the_client_does_not(broker_url: str, queue: str) -> None:
    async with Client(broker_url, ClientSettings(make_transaction_ids=False)) as client:
        pushed = await client.push(queue, 1)
    assert pushed.transaction_id == pushed.message_id


async def test_a_failed_message_is_redelivered_and_then_dead(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.configure(queue, {"retryLimit": 1})
    await client.push(queue, "poison")
    assert not (await client.nack(await pop_one(client, queue), "first")).dead
    redelivered = await pop_one(client, queue)
    assert redelivered.retry_count == 1
    assert (await client.nack(redelivered, "second")).dead
    assert await dead_letters(broker_url, queue) == [("poison", "second")]


async def test_retry_returns_a_message_without_counting_an_attempt(client: Client, queue: str) -> None:
    await client.push(queue, "x")
    await client.retry(await pop_one(client, queue))
    assert (await pop_one(client, queue)).retry_count == 0


async def test_a_message_can_be_declared_dead(client: Client, broker_url: str, queue: str) -> None:
    await client.push(queue, "wrong")
    assert (await client.dead_letter(await pop_one(client, queue), "no such customer")).dead
    assert await dead_letters(broker_url, queue) == [("wrong", "no such customer")]


async def test_batches_of_acks_have_one_result_per_message(
    client: Client, broker_url: str, queue: str
) -> None:
    await client.push_many(NewMessage(queue, n) for n in range(5))
    messages = await client.pop(queue, batch=5)
    assert [r.success for r in await client.ack_many(messages[:2])] == [True, True]
    assert [r.success for r in await client.ack_many([messages[0], messages[2]])] == [False, True]
    assert [r.dead for r in await client.dead_letter_many([messages[3]], "bad")] == [True]
    assert [r.lease_released for r in await client.retry_many([messages[4]])] == [True]
    [last] = messages = await client.pop(queue, batch=5)
    assert last.data == 4
    assert [r.success for r in await client.nack_many(messages, "again")] == [True]
    assert await dead_letters(broker_url, queue) == [(3, "bad")]
    assert await client.ack_many([]) == []


async def test_a_second_ack_raises_lease_lost(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    message = await pop_one(client, queue)
    await client.ack(message)
    with pytest.raises(LeaseLost) as lease_lost:
        await client.ack(message)
    assert (lease_lost.value.status, lease_lost.value.code, lease_lost.value.uncertain) == (
        409,
        "lease_lost",
        False,
    )
    assert lease_lost.value.fields == {"transactionId": message.transaction_id}
    with pytest.raises(LeaseLost):
        await client.extend(message)


async def test_a_lease_is_extended(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    message = await pop_one(client, queue)
    expires_at = await client.extend(message, 3600)
    assert expires_at - datetime.now(UTC) > timedelta(seconds=3000)


async def test_a_message_popped_with_auto_ack_cannot_be_acked(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    [message] = await client.pop(queue, auto_ack=True)
    with pytest.raises(ValueError, match="no lease to ack"):
        await client.ack(message)
    with pytest.raises(ValueError, match="no lease to extend"):
        await client.extend(message)
    assert await client.pop(queue) == []


async def test_a_pop_selects_partition_group_and_subscription(client: Client, queue: str) -> None:
    for n, partition in enumerate(["a/b", "ü", "a/b"]):
        await client.push(queue, n, partition=partition)
    popped = await client.pop(queue, partition="a/b", group="g", batch=9)
    assert [message.data for message in popped] == [0, 2]
    assert {message.group for message in popped} == {"g"}
    all_messages = await client.pop(queue, group="h", batch=9, partitions=9)
    assert sorted(message.data for message in all_messages) == [0, 1, 2]
    assert await client.pop(queue, group="new", subscription="new") == []
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert len(await client.pop(queue, group="old", partition="a/b", batch=9, subscription=long_ago)) == 2


async def test_a_pop_of_any_queue_of_a_namespace_or_task(client: Client, queue: str) -> None:
    name = f"{queue}.charge"
    await client.push(name, 1)
    await client.push(name, 2)
    [message] = await client.pop(AnyQueue(namespace=queue), wait=True, timeout_s=10)
    assert (message.queue, message.data) == (name, 1)
    await client.ack(message)
    [message] = await client.pop(AnyQueue(namespace=queue, task="charge"), wait=True, timeout_s=10)
    assert message.data == 2


async def test_errors_have_the_code_fields_and_detail_of_the_broker(client: Client, queue: str) -> None:
    with pytest.raises(NotFound) as missing:
        await client.options_of(queue)
    assert (missing.value.status, missing.value.code) == (404, "unknown_queue")
    assert missing.value.fields["queue"] == queue
    assert queue in missing.value.detail
    with pytest.raises(InvalidRequest) as refused:
        await client.configure(queue, {"leaseTme": 1})
    assert "did you mean leaseTime" in refused.value.detail
    assert isinstance(refused.value, ClientError)


async def test_a_push_to_a_full_queue_is_retried_up_to_the_attempt_limit(broker_url: str, queue: str) -> None:
    settings = ClientSettings(retry_attempts=2, retry_delay_s=0.01, honor_retry_after=False)
    async with Client(broker_url, settings) as client:
        await client.configure(queue, {"maxSize": 1})
        await client.push(queue, 1)
        with pytest.raises(Overloaded) as full:
            await client.push(queue, 2)
        assert (full.value.code, full.value.retry_after_s, full.value.uncertain) == ("queue_full", 1.0, False)
        await client.ack(await pop_one(client, queue))
        assert (await client.push(queue, 2)).status == "queued"


async def test_the_client_switches_to_the_next_broker(broker_url: str, queue: str) -> None:
    closed_url = f"http://127.0.0.1:{any_free_port()}"
    settings = ClientSettings(retry_delay_s=0.01)
    for _ in range(4):  # the client starts with a random one
        async with Client([closed_url, broker_url], settings) as client:
            assert (await client.push(queue, 1)).status == "queued"
    async with Client(closed_url, ClientSettings(retry_attempts=2, retry_delay_s=0.01)) as client:
        with pytest.raises(NoAnswer) as no_answer:
            await client.push(queue, 1)
        assert (no_answer.value.status, no_answer.value.uncertain) == (0, False)


async def test_a_payload_of_another_type_raises_a_validation_error(client: Client, queue: str) -> None:
    await client.push(queue, {"id": "seven"})
    with pytest.raises(msgspec.ValidationError):
        (await pop_one(client, queue)).into(Order)
