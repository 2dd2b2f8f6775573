"""Pops, dequeues and pages end at a byte budget and have at least one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import httpx
import pytest

from penstock.config import Settings

BUDGET = 4_000

Store = Callable[[httpx.AsyncClient, Sequence[int]], Awaitable[None]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_response_bytes": BUDGET})


async def push(client: httpx.AsyncClient, sizes: Sequence[int], partition: str = "p") -> None:
    """Push messages of these sizes, each in a request and so in a segment of its own."""
    for number, size in enumerate(sizes):
        await push_together(client, [size], partition, f"{partition}{number}-")


async def push_together(
    client: httpx.AsyncClient, sizes: Sequence[int], partition: str = "p", prefix: str = "m"
) -> None:
    items = [
        {
            "queue": "q",
            "partition": partition,
            "payload": "x" * (size - 2),
            "transactionId": f"{prefix}{number}",
        }
        for number, size in enumerate(sizes)
    ]
    response = await client.post("/api/v1/push", json={"items": items})
    assert response.status_code == 201, response.text


async def pop_sizes(client: httpx.AsyncClient, query: str) -> list[int]:
    response = await client.get(f"/api/v1/pop/queue/q?{query}")
    if response.status_code == 204:
        return []
    return [len(message["data"]) + 2 for message in response.json()["messages"]]


@pytest.mark.parametrize("query", ["batch=10", "batch=10&autoAck=true", "batch=10&consumerGroup=g"])
@pytest.mark.parametrize("store", [push, push_together], ids=["segment each", "one segment"])
async def test_a_pop_ends_before_its_payloads_exceed_the_budget(
    client: httpx.AsyncClient, query: str, store: Store
) -> None:
    await store(client, [1_500] * 5)
    assert await pop_sizes(client, query) == [1_500, 1_500]
    if "autoAck" in query:
        assert await pop_sizes(client, query) == [1_500, 1_500]
        assert await pop_sizes(client, query) == [1_500]
        assert await pop_sizes(client, query) == []


async def test_a_pop_returns_one_message_that_exceeds_the_budget(client: httpx.AsyncClient) -> None:
    await push(client, [9_000, 9_000])
    assert await pop_sizes(client, "batch=10&autoAck=true") == [9_000]
    assert await pop_sizes(client, "batch=10&autoAck=true") == [9_000]


async def test_messages_past_the_budget_follow_after_the_ack(client: httpx.AsyncClient) -> None:
    await push(client, [1_500] * 5)
    sizes: list[int] = []
    while True:
        response = await client.get("/api/v1/pop/queue/q?batch=10")
        if response.status_code == 204:
            break
        messages = response.json()["messages"]
        sizes.append(len(messages))
        acks = [
            {"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"]}
            for m in messages
        ]
        assert (await client.post("/api/v1/ack/batch", json={"acknowledgments": acks})).status_code == 200
    assert sizes == [2, 2, 1]


async def test_a_pop_of_several_partitions_leases_only_what_fits(client: httpx.AsyncClient) -> None:
    for partition in ("a", "b", "c"):
        await push(client, [1_500], partition)
    assert await pop_sizes(client, "batch=10&partitions=3") == [1_500, 1_500]
    assert await pop_sizes(client, "batch=10&partitions=3") == [1_500]  # it was not leased


async def test_small_messages_fill_a_batch(client: httpx.AsyncClient) -> None:
    await push_together(client, [10] * 50)
    assert await pop_sizes(client, "batch=50") == [10] * 50


@pytest.mark.parametrize("store", [push, push_together], ids=["segment each", "one segment"])
async def test_a_page_of_messages_ends_at_the_budget_and_continues(
    client: httpx.AsyncClient, store: Store
) -> None:
    await store(client, [1_500] * 5)
    pages: list[list[int]] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/api/v1/messages", params={"queue": "q", **cursor})).json()
        pages.append([message["offset"] for message in page["messages"]])
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert pages == [[4, 3], [2, 1], [0]]


async def test_a_page_of_dead_letters_ends_at_the_budget_and_continues(client: httpx.AsyncClient) -> None:
    await push(client, [1_500] * 5)
    for _ in range(3):
        messages = (await client.get("/api/v1/pop/queue/q?batch=10")).json()["messages"]
        for m in messages:
            ack = {"transactionId": m["transactionId"], "partitionId": m["partitionId"]}
            await client.post("/api/v1/ack", json={**ack, "leaseId": m["leaseId"], "status": "dlq"})
    pages: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/api/v1/dlq", params={"queue": "q", **cursor})).json()
        pages.append(len(page["messages"]))
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert pages == [2, 2, 1]
    assert page["total"] == 5
