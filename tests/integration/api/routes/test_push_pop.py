"""Push, pop, ack over HTTP: the wire contract and the responses to invalid input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.deadlines import deadline_s

PUSH = "/api/v1/push"
WaitForParkedPops = Callable[[int], Awaitable[None]]


async def push(
    client: httpx.AsyncClient, *payload_values: Any, queue: str = "q", **item: Any
) -> list[dict[str, Any]]:
    items = [{"queue": queue, "payload": payload, **item} for payload in payload_values]
    response = await client.post(PUSH, json={"items": items})
    assert response.status_code == 201, response.text
    results: list[dict[str, Any]] = response.json()
    return results


async def pop(client: httpx.AsyncClient, queue: str = "q", **params: Any) -> dict[str, Any]:
    response = await client.get(f"/api/v1/pop/queue/{queue}", params=params)
    if response.status_code == 204:
        return {"messages": []}
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def payloads(popped: dict[str, Any]) -> list[Any]:
    return [message["data"] for message in popped["messages"]]


async def ack(
    client: httpx.AsyncClient, message: dict[str, Any], status: str = "completed"
) -> httpx.Response:
    keys = ("transactionId", "partitionId", "leaseId")
    return await client.post("/api/v1/ack", json={**{k: message[k] for k in keys}, "status": status})


async def test_pushed_messages_are_popped_in_order_and_acked(client: httpx.AsyncClient) -> None:
    results = await push(client, {"n": 1}, {"n": 2}, None, "text", [1, 2.5])
    assert [r["index"] for r in results] == [0, 1, 2, 3, 4]
    assert {r["status"] for r in results} == {"queued"}
    popped = await pop(client, batch=10)
    assert payloads(popped) == [{"n": 1}, {"n": 2}, None, "text", [1, 2.5]]
    assert popped["messages"][0]["id"] == results[0]["message_id"]
    assert popped["messages"][0]["transactionId"] == results[0]["transaction_id"]
    for message in popped["messages"]:
        response = await ack(client, message)
        assert response.status_code == 200
        assert response.json()[0]["success"] is True
    assert response.json()[0]["leaseReleased"] is True
    assert payloads(await pop(client)) == []


async def test_a_payload_comes_back_byte_for_byte(client: httpx.AsyncClient) -> None:
    text = '{"big": 12345678901234567890, "dot": 1.10, "u": "\\u00e9é", "order": {"b":1,"a":2}}'
    await client.post(PUSH, content='{"items":[{"queue":"q","payload":' + text + "}]}")
    response = await client.get("/api/v1/pop/queue/q")
    assert text in response.text


async def test_one_invalid_item_fails_alone(client: httpx.AsyncClient) -> None:
    items: list[Any] = [
        {"queue": "q", "payload": 1},
        {"queue": "q", "payload": 2, "traceId": "not a uuid"},
        {"payload": 3},
        {"queue": "", "payload": 4},
        {"queue": "q", "payload": 5, "partition": "bad\u0000name"},
        7,
        {"queue": "a/b", "payload": 7},
        {"queue": "q", "payload": 8},
    ]
    response = await client.post(PUSH, json={"items": items})
    assert response.status_code == 201
    statuses = [r["status"] for r in response.json()]
    assert statuses == ["queued", *["failed"] * 6, "queued"]
    assert all(r["error"] for r in response.json() if r["status"] == "failed")
    assert payloads(await pop(client, batch=10)) == [1, 8]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"items": 1}', 422),
        (b"{}", 422),
        (b'{"items":[{"payload":1}]}', 422),
        (b'{"items":[{"queue":"","payload":1}]}', 422),
    ],
)
async def test_an_invalid_push_gets_a_precise_4xx(
    client: httpx.AsyncClient, content: bytes, status: int
) -> None:
    response = await client.post(PUSH, content=content)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["error"] == body["detail"] != ""


async def test_a_body_beyond_the_limit_is_rejected_with_413(client: httpx.AsyncClient) -> None:
    response = await client.post(PUSH, content=b" " * (32 * 1024 * 1024 + 1))
    assert response.status_code == 413
    assert "fewer items" in response.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "batch=0",
        "batch=x",
        "batch=-1",
        "batch=99999999",
        "autoAck=yes",
        "subscriptionMode=old",
        "timeout=1e3",
    ],
)
async def test_an_invalid_pop_gets_422(client: httpx.AsyncClient, query: str) -> None:
    response = await client.get(f"/api/v1/pop/queue/q?{query}")
    assert response.status_code == 422
    assert query.partition("=")[0] in response.json()["detail"]


async def test_an_ack_without_a_lease_changes_nothing(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    [message] = (await pop(client))["messages"]
    response = await client.post(
        "/api/v1/ack",
        json={"transactionId": message["transactionId"], "partitionId": message["partitionId"]},
    )
    assert response.status_code == 422
    assert "leaseId" in response.json()["detail"]
    assert (await ack(client, message)).status_code == 200


async def test_a_second_ack_under_a_released_lease_gets_409(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    [message] = (await pop(client))["messages"]
    assert (await ack(client, message)).status_code == 200
    response = await ack(client, message)
    assert response.status_code == 409
    assert response.json()["code"] == "lease_lost"


async def test_a_batch_of_acks_has_one_result_per_ack(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2)
    messages = (await pop(client, batch=2))["messages"]
    acks = [{k: m[k] for k in ("transactionId", "partitionId", "leaseId")} for m in messages]
    acks.insert(1, {"transactionId": "x", "partitionId": messages[0]["partitionId"], "leaseId": "nonsense"})
    response = await client.post("/api/v1/ack/batch", json={"acknowledgments": acks})
    assert [r["success"] for r in response.json()] == [True, False, True]
    assert [r["index"] for r in response.json()] == [0, 1, 2]


async def test_a_duplicate_returns_the_id_of_the_first_message(client: httpx.AsyncClient) -> None:
    [first] = await push(client, 1, transactionId="t")
    [second] = await push(client, 2, transactionId="t")
    assert second["status"] == "duplicate"
    assert second["message_id"] == first["message_id"]
    assert payloads(await pop(client, batch=5)) == [1]


async def test_auto_ack_needs_no_lease(client: httpx.AsyncClient) -> None:
    await push(client, 1, 2)
    popped = await pop(client, autoAck="true")
    assert (payloads(popped), popped["leaseId"]) == ([1], None)
    assert payloads(await pop(client, autoAck="true")) == [2]


async def test_a_lease_is_extended_with_and_without_a_body(client: httpx.AsyncClient) -> None:
    await push(client, 1)
    popped = await pop(client)
    for body in ({"seconds": 600}, None, {}):
        response = await client.post(f"/api/v1/lease/{popped['leaseId']}/extend", json=body)
        assert response.status_code == 200, response.text
        assert response.json()["newExpiresAt"].endswith("Z")
    response = await client.post("/api/v1/lease/1.00000000-0000-0000-0000-000000000000/extend")
    assert response.status_code == 409


async def test_a_transaction_pushes_and_acks_all_or_nothing(client: httpx.AsyncClient) -> None:
    await push(client, 1, queue="a")
    [message] = (await pop(client, "a"))["messages"]
    body = {
        "operations": [
            {"type": "push", "items": [{"queue": "b", "payload": 2}, {"queue": "c", "payload": 3}]},
            {"type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"]},
        ],
        "requiredLeases": [message["leaseId"]],
    }
    response = await client.post("/api/v1/transaction", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["success"] is True
    assert [r["type"] for r in response.json()["results"]] == ["push", "push", "ack"]
    assert payloads(await pop(client, "b")) == [2]
    again = await client.post("/api/v1/transaction", json=body)
    assert again.status_code == 409
    assert again.json()["success"] is False
    assert "operations[1]" in again.json()["error"]
    assert not any(r["success"] for r in again.json()["results"])
    assert payloads(await pop(client, "b")) == [], "the failed transaction pushed nothing"


async def test_a_waiting_pop_is_woken_by_a_push(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    waiting = asyncio.create_task(pop(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    started = time.monotonic()
    await push(client, "at last")
    assert payloads(await waiting) == ["at last"]
    assert time.monotonic() - started < deadline_s(5)


async def test_a_waiting_pop_returns_after_its_timeout(client: httpx.AsyncClient) -> None:
    assert payloads(await pop(client, wait="true", timeout=100)) == []


async def test_a_waiting_pop_is_woken_when_a_partition_is_released(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await push(client, 1, 2)
    [message] = (await pop(client))["messages"]
    waiting = asyncio.create_task(pop(client, wait="true", timeout=20_000))
    await wait_for_parked_pops(1)
    await ack(client, message)
    assert payloads(await waiting) == [2]


async def test_several_waiting_pops_share_a_push(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    waiting = [asyncio.create_task(pop(client, wait="true", timeout=20_000)) for _ in range(5)]
    await wait_for_parked_pops(5)
    items = [{"queue": "q", "partition": str(i), "payload": i} for i in range(5)]
    await client.post(PUSH, json={"items": items})
    assert sorted(n for popped in await asyncio.gather(*waiting) for n in payloads(popped)) == [0, 1, 2, 3, 4]


async def test_pop_by_namespace_and_task(
    client: httpx.AsyncClient, wait_for_parked_pops: WaitForParkedPops
) -> None:
    await push(client, "mail", queue="jobs.mail")
    await push(client, "other", queue="plain")
    response = await client.get("/api/v1/pop", params={"namespace": "jobs"})
    assert payloads(response.json()) == ["mail"]
    assert response.json()["queue"] == "jobs.mail"
    assert (await client.get("/api/v1/pop", params={"task": "nothing"})).status_code == 204
    assert (await client.get("/api/v1/pop")).status_code == 422
    waiting = asyncio.create_task(client.get("/api/v1/pop?task=mail&wait=true&timeout=20000"))
    await wait_for_parked_pops(1)
    await push(client, "more", queue="jobs.mail", partition="p2")
    assert payloads((await waiting).json()) == ["more"]


async def test_a_partition_may_have_a_slash_and_a_queue_may_not(client: httpx.AsyncClient) -> None:
    await push(client, 1, partition="tenant/7")
    response = await client.get("/api/v1/pop/queue/q/partition/tenant%2F7")
    assert payloads(response.json()) == [1]
    refused = await client.post(PUSH, json={"items": [{"queue": "a/b", "payload": 1}]})
    assert refused.status_code == 422
    assert "slash" in refused.json()["detail"]
