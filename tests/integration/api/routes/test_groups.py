"""The routes for consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import pytest

from tests.integration.api.calls import ack, assert_problem, get, pop, pop_payloads, push

WaitForParkedPops = Callable[[int], Awaitable[None]]
SEEK = "/api/v1/consumer-groups/g/queues/q/seek"


async def test_groups_are_listed_with_their_lag(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2, 3)
    await pop(client, consumerGroup="g")
    await pop(client, consumerGroup="h", subscriptionMode="new")
    response = await client.get("/api/v1/consumer-groups")
    assert response.headers["total-count"] == "2"
    g, h = response.json()
    assert (g["name"], g["queueName"], g["topics"]) == ("g", "q", ["q"])
    assert (g["totalLag"], g["processing"], g["state"], g["subscriptionMode"]) == (3, 1, "consuming", "all")
    assert 0 <= g["maxTimeLag"] < 60
    assert (h["totalLag"], h["state"], h["subscriptionMode"], h["maxTimeLag"]) == (0, "idle", "new", 0)
    assert len((await client.get("/api/v1/consumer-groups?limit=1")).json()) == 1


async def test_a_group_is_described_by_queue_and_partition(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2, partition="x")
    await push(client, 3, queue="r")
    await pop(client, consumerGroup="g")
    await pop(client, "r", consumerGroup="g")
    body = await get(client, "/consumer-groups/g")
    assert set(body) == {"q", "r"}
    [position] = body["q"]["partitions"]
    assert (position["partition"], position["offsetLag"], position["leaseActive"]) == ("x", 2, True)
    assert set(await get(client, "/consumer-groups/g", queue="r")) == {"r"}
    assert_problem(await client.get("/api/v1/consumer-groups/unknown"), 404, "unknown_group")


async def test_lagging_positions_report_seconds(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    await pop(client, consumerGroup="g")
    assert await get(client, "/consumer-groups/lagging") == []
    [row] = await get(client, "/consumer-groups/lagging", minLagSeconds=0)
    assert (row["consumer_group"], row["queue_name"], row["partition_name"]) == ("g", "q", "Default")
    assert row["offset_lag"] == 1
    assert 0 <= row["time_lag_seconds"] < 60
    assert_problem(
        await client.get("/api/v1/consumer-groups/lagging?minLagSeconds=x"), 422, "invalid_request"
    )


async def test_the_worst_partitions_of_a_queue_are_listed_by_age_or_lag(client: httpx.AsyncClient) -> None:
    for queue, partition, count in (("q", "old", 1), ("q", "long", 3), ("r", "x", 9)):
        await push(client, *range(count), queue=queue, partition=partition)
    for queue in ("q", "r"):
        await pop(client, queue, consumerGroup="g", subscriptionMode="all")
    worst = {"queue": "q", "minLagSeconds": 0}
    by_age = await get(client, "/consumer-groups/lagging", **worst)
    assert [row["partition_name"] for row in by_age] == ["old", "long"]
    by_lag = await get(client, "/consumer-groups/lagging", **worst, sort="lag")
    assert [(row["partition_name"], row["offset_lag"]) for row in by_lag] == [("long", 3), ("old", 1)]
    refused = await client.get("/api/v1/consumer-groups/lagging?sort=name")
    assert_problem(refused, 422, "invalid_request")


async def test_seek_moves_a_group_to_the_end_and_to_a_time(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2)
    await pop_payloads(client, consumerGroup="g")
    seek_time = datetime.now(UTC)
    await push(client, 3)
    moved = (await client.post(SEEK, json={"toEnd": True})).json()
    assert (moved["success"], moved["partitionsUpdated"], moved["messagesSkipped"]) == (True, 1, 3)
    assert await pop_payloads(client, consumerGroup="g") == []
    moved = (await client.post(SEEK, json={"timestamp": seek_time.isoformat()})).json()
    assert moved["messagesReplayed"] == 1
    assert await pop_payloads(client, consumerGroup="g", batch=5) == [3]


async def test_seek_without_a_body_moves_one_partition_to_its_end(client: httpx.AsyncClient) -> None:
    for name in "xy":
        await push(client, name, partition=name)
    await pop_payloads(client, consumerGroup="g", partitions=2, batch=2)
    path = "/api/v1/consumer-groups/g/queues/q/partitions/x/seek"
    assert (await client.post(path)).json()["updated"] is True
    body = {"timestamp": "2000-01-01T00:00:00Z"}
    await client.post(path.replace("/x/", "/y/"), json=body)
    assert await pop_payloads(client, consumerGroup="g", partitions=2, batch=2) == ["y"]
    assert_problem(await client.post(path.replace("/x/", "/z/")), 404, "unknown_partition")


async def test_a_seek_whose_body_was_lost_moves_nothing(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    await pop(client, consumerGroup="g", autoAck="true")
    await push(client, 2)
    path = "/api/v1/consumer-groups/g/queues/q/partitions/Default/seek"
    response = await client.post(path, content=b"", headers={"content-length": "40"})
    assert "0 of 40 bytes" in assert_problem(response, 400, "malformed_body")
    assert await pop_payloads(client, consumerGroup="g") == [2]


async def test_a_seek_wakes_parked_pops(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await push(client, 1)
    await ack(client, (await pop(client, consumerGroup="g"))[0])
    waiting = asyncio.create_task(pop_payloads(client, consumerGroup="g", wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await client.post(SEEK, json={"timestamp": "2000-01-01"})
    assert await waiting == [1]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"toEnd": False},
        {"toEnd": True, "timestamp": "2024-01-01"},
        {"timestamp": "soon"},
        {"to": 1},
        {"toEnd": 1},
    ],
)
async def test_a_seek_without_a_valid_target_is_refused(
    client: httpx.AsyncClient, body: dict[str, object]
) -> None:
    await push(client, 1)
    await pop_payloads(client, consumerGroup="g")
    assert_problem(await client.post(SEEK, json=body), 422, "invalid_request")


async def test_an_unknown_group_cannot_be_moved_or_deleted(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    assert_problem(await client.post(SEEK, json={"toEnd": True}), 404, "unknown_group")
    assert_problem(await client.delete("/api/v1/consumer-groups/g"), 404, "unknown_group")
    assert_problem(await client.delete("/api/v1/consumer-groups/g/queues/q"), 404, "unknown_group")


async def test_a_pop_recreates_a_deleted_group(client: httpx.AsyncClient) -> None:
    for queue in ("q", "r"):
        await push(client, 1, queue=queue)
        await pop_payloads(client, queue, consumerGroup="g", autoAck="true")
    body = (await client.delete("/api/v1/consumer-groups/g/queues/q")).json()
    assert (body["success"], body["deletedPartitions"], body["metadataDeleted"]) == (True, 1, True)
    assert await pop_payloads(client, "q", consumerGroup="g", autoAck="true") == [1]
    assert await pop_payloads(client, "r", consumerGroup="g", autoAck="true") == []
    assert (await client.delete("/api/v1/consumer-groups/g")).json()["deletedPartitions"] == 2
    assert await pop_payloads(client, "r", consumerGroup="g") == [1]


async def test_delete_without_metadata_resets_a_group_to_its_start(client: httpx.AsyncClient) -> None:
    await push(client, "before")
    await pop_payloads(client, consumerGroup="g", subscriptionMode="new")
    await push(client, "after")
    assert await pop_payloads(client, consumerGroup="g", autoAck="true") == ["after"]
    body = (await client.delete("/api/v1/consumer-groups/g?deleteMetadata=false")).json()
    assert body["metadataDeleted"] is False
    assert await pop_payloads(client, consumerGroup="g", batch=5) == ["after"]


async def test_a_new_subscription_moves_a_group_in_all_its_queues(client: httpx.AsyncClient) -> None:
    for queue in ("q", "r"):
        await push(client, 1, queue=queue)
        await pop_payloads(client, queue, consumerGroup="g", autoAck="true")
    path = "/api/v1/consumer-groups/g/subscription"
    body = (await client.post(path, json={"subscriptionTimestamp": "2020-01-01T00:00:00Z"})).json()
    assert (body["rowsUpdated"], body["queues"]) == (2, ["q", "r"])
    assert await pop_payloads(client, "r", consumerGroup="g") == [1]
    [g, _] = await get(client, "/consumer-groups")
    assert g["subscriptionMode"] == "timestamp"
    assert_problem(await client.post(path, json={}), 422, "invalid_request")
    assert_problem(await client.post(path, json={"subscriptionTimestamp": "x"}), 422, "invalid_request")
