"""Quotas of queues, partitions, messages and bytes: refused requests change nothing, others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from penstock.model import DEFAULT_SCOPE
from tests.integration.api.calls import configure, get, pop
from tests.integration.api.quotas.limited_broker import LimitedBroker, assert_exceeded, push


async def queue_names(client: httpx.AsyncClient) -> set[str]:
    page = await get(client, "/resources/queues")
    return {queue["name"] for queue in page["queues"]}


async def test_a_queue_beyond_the_quota_is_not_created(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, "first", 1)
    await broker.limit(queues=2)
    assert (await push(client, "second", 1)).status_code == 201
    assert_exceeded(await push(client, "third", 1), "queues", 2)
    assert_exceeded(await configure(client, "third"), "queues", 2)
    assert (await push(client, "first", 2)).status_code == 201
    assert (await configure(client, "second", leaseTime=5)).status_code == 200
    assert await queue_names(client) == {"first", "second"}


async def test_run_queues_count_as_queues(broker: LimitedBroker, client: httpx.AsyncClient) -> None:
    await broker.limit(queues=2)

    async def enqueue(queue: str) -> httpx.Response:
        return await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"payload": 1})

    responses = await asyncio.gather(*(enqueue(f"r{number}") for number in range(5)))
    assert sorted(response.status_code for response in responses) == [201, 201, 429, 429, 429]
    assert_exceeded(next(response for response in responses if response.status_code == 429), "queues", 2)
    created = [number for number, response in enumerate(responses) if response.status_code == 201]
    assert (await enqueue(f"r{created[0]}")).status_code == 201
    assert_exceeded(await client.put("/api/v1/run-queues/r9/limits", json={"concurrency": 1}), "queues", 2)
    assert (await get(client, "/run-queues"))["total"] == 2
    await broker.wait_for_use("queues", 2)
    assert_exceeded(await push(client, "durable", 1), "queues", 2)
    assert await queue_names(client) == set()


async def test_a_push_stores_what_fits_of_the_partitions(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, "q", 1, partition="a")
    await broker.limit(partitions=2)
    items = [{"queue": "q", "partition": name, "payload": name} for name in ("a", "b", "c", "d")]
    response = await client.post("/api/v1/push", json={"items": items})
    assert [item["status"] for item in response.json()] == ["queued", "queued", "failed", "failed"]
    assert "quota partitions" in response.json()[2]["error"]
    assert_exceeded(await push(client, "q", 1, partition="c"), "partitions", 2)
    assert_exceeded(await configure(client, "other"), "partitions", 2)
    assert (await get(client, "/resources/partitions"))["total"] == 2


async def test_concurrent_pushes_do_not_exceed_the_quota_of_partitions_together(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await broker.limit(partitions=5)
    responses = await asyncio.gather(*(push(client, f"q{n % 7}", n, partition=f"p{n}") for n in range(20)))
    assert [response.status_code for response in responses].count(201) == 5
    assert (await get(client, "/resources/partitions"))["total"] == 5


async def test_a_transaction_beyond_a_quota_changes_nothing(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await push(client, "q", 1)
    [message] = await pop(client)
    await broker.limit(queues=1, storedMessages=3)
    ack = {
        "type": "ack",
        **{name: message[name] for name in ("transactionId", "partitionId", "leaseId")},
        "status": "completed",
    }

    async def send(queue: str, *payloads: int, partition: str = "Default") -> httpx.Response:
        items = [{"queue": queue, "partition": partition, "payload": payload} for payload in payloads]
        items.append({"queue": "q", "partition": "new", "payload": 0})
        operations: list[dict[str, Any]] = [{"type": "push", "items": items}, ack]
        return await client.post("/api/v1/transaction", json={"operations": operations})

    assert_exceeded(await send("new", 2), "queues", 1)
    await broker.wait_for_use("storedMessages", 1)
    assert_exceeded(await send("q", 2, 3), "storedMessages", 3)
    assert (await get(client, "/resources/partitions"))["total"] == 1
    assert (await send("q", 2)).status_code == 200


async def test_messages_beyond_the_quota_are_refused_until_there_is_room(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    await broker.limit(storedMessages=5)
    assert_exceeded(await push(client, "q", *range(6)), "storedMessages", 5)
    assert await queue_names(client) == set()
    assert (await push(client, "q", *range(5))).status_code == 201
    assert_exceeded(await push(client, "q", 6), "storedMessages", 5)
    assert len(await pop(client, batch=10)) == 5
    await broker.wait_for_use("storedMessages", 5)
    assert (await client.delete("/api/v1/resources/queues/q")).status_code == 200
    await broker.wait_for_use("storedMessages", 0)
    assert (await push(client, "q", 1)).status_code == 201


async def test_tasks_count_as_stored_messages(broker: LimitedBroker, client: httpx.AsyncClient) -> None:
    await broker.limit(storedMessages=3)
    tasks = {"tasks": [{"payload": number} for number in range(2)]}
    assert (await client.post("/api/v1/run-queues/r/tasks", json=tasks)).status_code == 201
    assert_exceeded(await client.post("/api/v1/run-queues/r/tasks", json=tasks), "storedMessages", 3)
    await broker.wait_for_use("storedMessages", 2)
    assert (await push(client, "q", 1)).status_code == 201
    assert_exceeded(await push(client, "q", 2), "storedMessages", 3)


async def test_stored_bytes_are_those_of_the_log(broker: LimitedBroker, client: httpx.AsyncClient) -> None:
    for partition in ("a", "b", "c"):
        await push(client, "q", *["x" * 1_000] * 10, partition=partition)
    await broker.limit(storedBytes=50_000)
    [reading] = broker.services.quotas.read_environment(DEFAULT_SCOPE)
    assert reading.used is not None
    assert 30_000 < reading.used < 33_000
    assert not reading.is_warning
    assert_exceeded(await push(client, "q", "x" * 20_000), "storedBytes", 50_000)
    assert (await push(client, "q", "x" * 1_000)).status_code == 201


async def test_an_environment_without_quotas_is_not_limited_by_another(
    broker: LimitedBroker, client: httpx.AsyncClient
) -> None:
    other = DEFAULT_SCOPE._replace(environment="staging")
    await broker.services.environments.create(other, {})
    await broker.limit(queues=0, storedMessages=0, requestsPerSecond=1)
    headers = {"X-Penstock-Environment": "/".join(other)}
    for number in range(20):
        body = {"items": [{"queue": f"q{number}", "payload": number}]}
        assert (await client.post("/api/v1/push", json=body, headers=headers)).status_code == 201
