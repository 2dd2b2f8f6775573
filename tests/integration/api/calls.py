"""Requests that most tests of routes send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock.api.services import Services
from penstock.broker.self_metrics.worker_metrics import WorkerMetrics
from penstock.telemetry import ENVIRONMENT_LABELS


async def push(
    client: httpx.AsyncClient, *payloads: Any, queue: str = "q", **item: Any
) -> list[dict[str, Any]]:
    items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
    response = await client.post("/api/v1/push", json={"items": items})
    assert response.status_code == 201, response.text
    results: list[dict[str, Any]] = response.json()
    return results


async def pop(client: httpx.AsyncClient, queue: str = "q", **params: Any) -> list[dict[str, Any]]:
    response = await client.get(f"/api/v1/pop/queue/{queue}", params=params)
    assert response.status_code in (200, 204), response.text
    messages: list[dict[str, Any]] = response.json()["messages"] if response.status_code == 200 else []
    return messages


async def pop_payloads(client: httpx.AsyncClient, queue: str = "q", **params: Any) -> list[Any]:
    return [message["data"] for message in await pop(client, queue, **params)]


async def ack(
    client: httpx.AsyncClient, message: dict[str, Any], status: str = "completed", **fields: Any
) -> None:
    keys = ("transactionId", "partitionId", "leaseId")
    body = {**{key: message[key] for key in keys}, "status": status, **fields}
    response = await client.post("/api/v1/ack", json=body)
    assert response.status_code == 200, response.text


async def configure(client: httpx.AsyncClient, queue: str = "q", **options: Any) -> httpx.Response:
    return await client.post("/api/v1/configure", json={"queue": queue, "options": options})


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    response = await client.get(f"/api/v1{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def assert_problem(response: httpx.Response, status: int, code: str) -> str:
    """Assert that the response is this problem and return its detail."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["code"] == code, body
    assert body["error"] == body["detail"]
    detail: str = body["detail"]
    return detail


async def scrape_metrics(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of `GET /metrics` by metric and label values."""
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    families = text_string_to_metric_families(response.text)  # type: ignore[no-untyped-call]
    return {f.name: {label_values(s.labels): s.value for s in f.samples} for f in families}


def label_values(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The values of labels, without those that name the default environment."""
    return tuple(
        value for name, value in labels.items() if name not in ENVIRONMENT_LABELS or value != "default"
    )


async def write_minutes(worker: WorkerMetrics) -> None:
    """Write everything that happened so far to the minute rows."""
    worker.sample()
    await worker.write_minutes()


def app_services(app: FastAPI) -> Services:
    """The services of a running application, typed."""
    services: Services = app.state.services
    return services
