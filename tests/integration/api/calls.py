"""The calls that most tests of routes make."""

from __future__ import annotations

from typing import Any

import httpx


async def push(
    client: httpx.AsyncClient, *payloads: Any, queue: str = "q", **item: Any
) -> list[dict[str, Any]]:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    answer = await client.post("/api/v1/push", json={"items": items})
    assert answer.status_code == 201, answer.text
    results: list[dict[str, Any]] = answer.json()
    return results


async def pop(client: httpx.AsyncClient, queue: str = "q", **params: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/api/v1/pop/queue/{queue}", params=params)
    assert answer.status_code in (200, 204), answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
    return messages


async def popped(client: httpx.AsyncClient, queue: str = "q", **params: Any) -> list[Any]:
    return [message["data"] for message in await pop(client, queue, **params)]


async def ack(
    client: httpx.AsyncClient, message: dict[str, Any], status: str = "completed", **more: Any
) -> None:
    keys = ("transactionId", "partitionId", "leaseId")
    body = {**{key: message[key] for key in keys}, "status": status, **more}
    answer = await client.post("/api/v1/ack", json=body)
    assert answer.status_code == 200, answer.text


async def configure(client: httpx.AsyncClient, queue: str = "q", **options: Any) -> httpx.Response:
    return await client.post("/api/v1/configure", json={"queue": queue, "options": options})


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(f"/api/v1{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def problem(answer: httpx.Response, status: int, code: str) -> str:
    """The detail of an answer that must be this problem."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["code"] == code, body
    assert body["error"] == body["detail"]
    detail: str = body["detail"]
    return detail
