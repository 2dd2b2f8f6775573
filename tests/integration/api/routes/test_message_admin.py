"""The routes for single messages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.api.calls import (
    ack,
    app_services,
    assert_problem,
    configure,
    get,
    pop,
    pop_payloads,
    push,
)


def message_path(result: dict[str, Any], action: str = "") -> str:
    return f"/api/v1/messages/{result['partition_id']}/{result['transaction_id']}{action}"


async def test_messages_are_listed_with_payload_and_status(client: httpx.AsyncClient) -> None:
    await push(client, {"n": 1}, {"n": 2}, {"n": 3}, transactionId=None)
    [first] = await pop(client)
    await ack(client, first)
    await pop(client)
    body = await get(client, "/messages", queue="q")
    assert [(m["data"]["n"], m["status"]) for m in body["messages"]] == [
        (3, "pending"),
        (2, "processing"),
        (1, "completed"),
    ]
    assert (body["total"], body["nextCursor"]) == (3, None)
    assert body["messages"][2]["transactionId"] == first["transactionId"]
    body = await get(client, "/messages", queue="q", status="pending")
    assert [m["data"]["n"] for m in body["messages"]] == [3]


async def test_pages_are_continued_by_cursor(client: httpx.AsyncClient) -> None:
    for name in "xy":
        await push(client, *range(5), partition=name)
    listed: list[tuple[str, int]] = []
    cursor: dict[str, str] = {}
    while True:
        body = await get(client, "/messages", queue="q", limit=3, **cursor)
        listed += [(m["partition"], m["data"]) for m in body["messages"]]
        if body["nextCursor"] is None:
            break
        cursor = {"cursor": body["nextCursor"]}
    assert listed == [(name, n) for name in "xy" for n in reversed(range(5))]
    body = await get(client, "/messages", queue="q", partition="y", limit=2, offset=1)
    assert [m["data"] for m in body["messages"]] == [3, 2]


async def test_messages_of_all_queues_are_listed_without_a_queue(client: httpx.AsyncClient) -> None:
    for name in ("a", "b"):
        await push(client, f"{name}1", f"{name}2", queue=name)
    [first] = await pop(client, "a", consumerGroup="g")
    await ack(client, first)
    body = await get(client, "/messages")
    assert [(m["queue"], m["data"]) for m in body["messages"]] == [
        ("a", "a2"),
        ("a", "a1"),
        ("b", "b2"),
        ("b", "b1"),
    ]
    assert body["total"] == 4
    page = await get(client, "/messages", limit=3)
    rest = await get(client, "/messages", limit=3, cursor=page["nextCursor"])
    assert [m["data"] for m in rest["messages"]] == ["b1"]
    completed = await get(client, "/messages", status="completed", consumerGroup="g")
    assert [m["data"] for m in completed["messages"]] == ["a1"]
    assert_problem(await client.get("/api/v1/messages?consumerGroup=none"), 404, "unknown_group")
    assert_problem(await client.get("/api/v1/messages?partition=p"), 422, "invalid_request")


async def test_pages_of_completed_messages_skip_dead_ones(client: httpx.AsyncClient) -> None:
    await push(client, *range(6))
    for status in ("completed", "dlq", "dlq", "dlq", "completed"):
        await ack(client, (await pop(client))[0], status)
    listed: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        body = await get(client, "/messages", queue="q", status="completed", limit=1, **cursor)
        listed += [m["data"] for m in body["messages"]]
        if body["nextCursor"] is None:
            break
        cursor = {"cursor": body["nextCursor"]}
    assert listed == [4, 0]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("queue=a/b", 422, "invalid_request"),
        ("queue=unknown", 404, "unknown_queue"),
        ("queue=q&partition=none", 404, "unknown_partition"),
        ("queue=q&consumerGroup=none", 404, "unknown_group"),
        ("queue=q&status=odd", 422, "invalid_request"),
        ("queue=q&cursor=odd", 422, "invalid_request"),
        ("queue=q&limit=1001", 422, "invalid_request"),
    ],
)
async def test_an_invalid_listing_is_refused(
    client: httpx.AsyncClient, query: str, status: int, code: str
) -> None:
    await push(client, 1)
    assert_problem(await client.get(f"/api/v1/messages?{query}"), status, code)


async def test_a_message_is_returned_with_its_state_for_each_group(client: httpx.AsyncClient) -> None:
    [result] = await push(client, {"n": 1})
    [message] = await pop(client, consumerGroup="g")
    await ack(client, message, "failed", error="oh no")
    await pop(client, consumerGroup="h")
    body = (await client.get(message_path(result))).json()
    assert (body["data"], body["payload"], body["queue"], body["offset"]) == ({"n": 1}, {"n": 1}, "q", 0)
    assert [(g["name"], g["status"], g["retryCount"]) for g in body["consumerGroups"]] == [
        ("g", "pending", 1),
        ("h", "processing", 0),
    ]
    assert body["id"] == result["message_id"]


async def test_an_unknown_message_gets_404(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    base_path = f"/api/v1/messages/{result['partition_id']}"
    for action in ("", "/retry", "/dlq"):
        method = "GET" if not action else "POST"
        code = "unknown_message" if action != "/retry" else "wrong_state"
        assert_problem(
            await client.request(method, f"{base_path}/none{action}"), 404 if code[0] == "u" else 409, code
        )
    assert_problem(await client.delete(f"{base_path}/none"), 404, "unknown_message")
    assert_problem(await client.get("/api/v1/messages/999999999/none"), 404, "unknown_partition")
    assert_problem(await client.get("/api/v1/messages/x/none"), 422, "invalid_request")
    assert_problem(await client.get(f"{base_path}/a%00b"), 422, "invalid_request")


async def test_ids_and_partitions_may_contain_slashes(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1, transactionId="a/b", partition="x/y")
    base_path = f"/api/v1/messages/{result['partition_id']}/a%2Fb"
    assert (await client.get(base_path)).json()["transactionId"] == "a/b"
    await pop_payloads(client)
    assert (await client.post(f"{base_path}/dlq")).json()["outcome"] == "dead"
    assert (await client.post(f"{base_path}/retry")).json()["partition"] == "x/y"
    seek = "/api/v1/consumer-groups/__QUEUE_MODE__/queues/q/partitions/x%2Fy/seek"
    assert (await client.post(seek)).json()["partitionName"] == "x/y"
    assert (await client.delete(base_path)).json()["success"] is True


async def test_a_deleted_message_is_never_delivered(client: httpx.AsyncClient) -> None:
    _, second = await push(client, 1, 2)
    await push(client, 3)
    assert (await client.delete(message_path(second))).json()["success"] is True
    assert_problem(await client.get(message_path(second)), 404, "unknown_message")
    assert await pop_payloads(client, batch=5) == [1, 3]
    assert await pop_payloads(client, batch=5, consumerGroup="late") == [1, 3]


async def test_a_message_declared_dead_is_listed_and_can_be_retried(client: httpx.AsyncClient) -> None:
    [result] = await push(client, {"n": 1}, transactionId="t")
    await push(client, {"n": 2})
    assert_problem(await client.post(message_path(result, "/dlq")), 404, "unknown_group")
    await ack(client, (await pop(client))[0], "retry")
    body = (await client.post(message_path(result, "/dlq"), json={"error": "broken"})).json()
    assert (body["consumerGroup"], body["outcome"]) == ("__QUEUE_MODE__", "dead")
    assert (await client.post(message_path(result, "/dlq"))).json()["outcome"] == "already_dead"
    [dead_letter] = (await get(client, "/dlq", queue="q"))["messages"]
    assert (dead_letter["data"], dead_letter["errorMessage"], dead_letter["retryCount"]) == (
        {"n": 1},
        "broken",
        0,
    )
    body = (await get(client, "/messages", queue="q", status="dead_letter"))["messages"]
    assert [m["transactionId"] for m in body] == ["t"]
    retried = (await client.post(message_path(result, "/retry"))).json()
    assert (retried["success"], retried["retryOf"], retried["partition"]) == (True, "t", "Default")
    assert [m["n"] for m in await pop_payloads(client, batch=5)] == [2, 1]
    assert (await get(client, "/dlq", queue="q"))["total"] == 0
    assert_problem(await client.post(message_path(result, "/retry")), 409, "wrong_state")


async def test_the_group_is_required_if_there_are_several(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    for group in ("g", "h"):
        await pop_payloads(client, consumerGroup=group)
    assert_problem(await client.post(message_path(result, "/dlq")), 422, "invalid_request")
    body = (await client.post(message_path(result, "/dlq"), json={"consumerGroup": "h"})).json()
    assert body["consumerGroup"] == "h"
    assert_problem(
        await client.post(message_path(result, "/dlq"), json={"group": "h"}), 422, "invalid_request"
    )


async def test_a_finished_message_cannot_be_declared_dead(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    await pop_payloads(client, autoAck="true")
    assert_problem(await client.post(message_path(result, "/dlq")), 409, "wrong_state")


async def test_a_retry_into_a_full_queue_gets_429(client: httpx.AsyncClient) -> None:
    [result] = await push(client, 1)
    await ack(client, (await pop(client))[0], "dlq")
    await push(client, 2)
    await configure(client, maxSize=1)
    assert_problem(await client.post(message_path(result, "/retry")), 429, "queue_full")


async def test_dead_letters_are_decrypted_filtered_and_counted(client: httpx.AsyncClient) -> None:
    await configure(client, encryptionEnabled=True, retryLimit=0)
    for name in "xy":
        await push(client, {"secret": name}, partition=name)
    for group in ("g", "h"):
        for message in await pop(client, consumerGroup=group, batch=2, partitions=2):
            await ack(client, message, "failed", error=f"no {message['partition']}")
    body = await get(client, "/dlq", queue="q", consumerGroup="g", limit=1)
    assert (body["total"], len(body["messages"]), body["pagination"]) == (2, 1, {"limit": 1, "offset": 0})
    body = await get(client, "/dlq", queue="q", consumerGroup="g", partition="x")
    [dead_letter] = body["messages"]
    assert (dead_letter["data"], dead_letter["errorMessage"], dead_letter["consumerGroup"]) == (
        {"secret": "x"},
        "no x",
        "g",
    )
    assert (body["total"], body["totalIsExact"]) == (1, True)
    assert (await get(client, "/dlq"))["total"] == 4
    assert (await get(client, "/dlq", **{"from": "2100-01-01T00:00:00Z"}))["messages"] == []
    assert len((await get(client, "/dlq", to="2100-01-01"))["messages"]) == 4
    assert (await get(client, "/dlq", queue="unknown"))["total"] == 0
    assert_problem(await client.get("/api/v1/dlq?from=soon"), 422, "invalid_request")
    [message] = (await get(client, "/messages", queue="q", partition="y"))["messages"]
    assert message["data"] == {"secret": "y"}


async def test_a_payload_without_its_key_does_not_hide_other_messages(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    await configure(client, encryptionEnabled=True)
    await push(client, "encrypted")
    await configure(client, encryptionEnabled=False)
    await push(client, "plain")
    app_services(app).broker.cipher._keys.clear()
    newest, oldest = (await get(client, "/messages", queue="q"))["messages"]
    assert newest["data"] == "plain"
    assert oldest["data"] is None
    assert "PENSTOCK_ENCRYPTION_KEYS" in oldest["dataProblem"]
