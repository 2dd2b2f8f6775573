"""The route that returns the life of a message."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.durable.pool import Database
from tests.integration.api import shared_app
from tests.integration.api.calls import ack, assert_problem, configure, get, pop, push
from tests.waiting import wait_until_async

app = shared_app.app
database = shared_app.database


async def read_life(client: httpx.AsyncClient, message: dict[str, Any]) -> dict[str, Any]:
    life: dict[str, Any] = await get(
        client, f"/messages/life/{message['partitionId']}/{message['transactionId']}"
    )
    return life


def event_names(life: dict[str, Any]) -> list[str]:
    times = [event["at"] for event in life["events"]]
    assert times == sorted(times)
    return [event["event"] for event in life["events"]]


async def pop_one(client: httpx.AsyncClient, queue: str) -> dict[str, Any]:
    """Pop one message; wait for it if a lease must expire first."""
    messages: list[dict[str, Any]] = []

    async def popped() -> bool:
        messages.extend(await pop(client, queue))
        return bool(messages)

    await wait_until_async(popped, 10, "a message is popped")
    return messages[0]


async def test_failures_death_requeue_and_traces_are_in_the_life_of_a_message(
    client: httpx.AsyncClient,
) -> None:
    await configure(client, "life", retryLimit=1)
    await push(client, {"n": 1}, queue="life")
    message = await pop_one(client, "life")
    await ack(client, message, "failed", error="no stock")
    message = await pop_one(client, "life")
    trace = {key: message[key] for key in ("transactionId", "partitionId")}
    response = await client.post("/api/v1/traces", json={**trace, "data": {"step": 2}, "eventType": "info"})
    assert response.status_code == 201
    life = await read_life(client, message)
    assert event_names(life) == ["pushed", "delivered", "failed", "delivered", "trace"]
    failed, delivered, traced = life["events"][2:]
    assert (failed["error"], failed["attempts"], failed["consumerGroup"]) == ("no stock", 1, "__QUEUE_MODE__")
    assert delivered["leaseExpiresAt"] == life["leaseExpiresAt"]
    assert traced["data"] == {"step": 2}

    await ack(client, message, "failed", error="still no stock")
    life = await read_life(client, message)
    assert event_names(life) == ["pushed", "delivered", "failed", "trace", "dead"]
    assert life["events"][-1]["error"] == "still no stock"

    path = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}/retry"
    requeued = (await client.post(path, json={})).json()
    life = await read_life(client, message)
    assert event_names(life) == ["pushed", "delivered", "failed", "trace", "dead", "requeued"]
    assert life["events"][-1]["messageId"] == requeued["messageId"]
    [pushed, origin] = (await read_life(client, requeued))["events"]
    assert (pushed["event"], origin["event"], origin["deaths"]) == ("pushed", "requeued_from", 1)
    assert origin["firstTransactionId"] == message["transactionId"]


async def test_a_lost_lease_is_recorded_for_the_messages_it_still_held(client: httpx.AsyncClient) -> None:
    await configure(client, "lost", leaseTime=0.1)
    await push(client, *range(3), queue="lost")
    first, second, third = await pop(client, "lost", batch=3)
    await ack(client, first)
    await pop_one(client, "lost")
    assert event_names(await read_life(client, first)) == ["pushed"]
    for held in (second, third):
        assert event_names(await read_life(client, held))[:3] == ["pushed", "delivered", "lease_lost"]


async def test_events_are_deleted_with_their_queue(client: httpx.AsyncClient, database: Database) -> None:
    await push(client, 1, queue="gone")
    message = await pop_one(client, "gone")
    await ack(client, message, "failed", error="x")
    query = "SELECT count(*) FROM message_events WHERE partition_id = $1"
    assert (await database.fetch(query, int(message["partitionId"])))[0][0] == 1
    await client.delete("/api/v1/resources/queues/gone")
    assert (await database.fetch(query, int(message["partitionId"])))[0][0] == 0


async def test_the_life_of_an_unknown_message_is_refused(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1, queue="known")
    path = f"/api/v1/messages/life/{result['partition_id']}/absent"
    assert_problem(await client.get(path), 404, "unknown_message")
    assert_problem(await client.get("/api/v1/messages/life/999999999/x"), 404, "unknown_partition")
