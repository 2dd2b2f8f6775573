"""The routes that pause and resume queues, and the responses to requests with an unknown queue."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.api.calls import app_services, assert_problem, get, pop_payloads, push, scrape_metrics


@pytest.fixture
def prefix() -> str:
    """Names of run queues are unique, because tests share a Redis server."""
    return uuid4().hex


async def test_a_durable_queue_is_paused_and_resumed(client: httpx.AsyncClient, app: FastAPI) -> None:
    await push(client, "a")
    response = await client.post("/api/v1/resources/queues/q/pause")
    paused = response.json()
    assert (response.status_code, paused["name"], paused["depth"], paused["paused"]) == (200, "q", 1, True)
    assert (await client.get("/api/v1/pop/queue/q")).status_code == 204
    assert await pop_payloads(client, batch=5) == []
    await push(client, "b")
    assert [queue["paused"] for queue in (await get(client, "/resources/queues"))["queues"]] == [True]
    assert (await get(client, "/resources/queues/q"))["paused"] is True
    app_services(app).worker_metrics.sample()
    assert (await scrape_metrics(client))["penstock_queue_paused"][("q",)] == 1
    resumed = await client.post("/api/v1/resources/queues/q/resume")
    assert resumed.json()["paused"] is False
    assert await pop_payloads(client, batch=5) == ["a", "b"]
    assert (await scrape_metrics(client))["penstock_queue_paused"][("q",)] == 0


async def test_the_pause_of_a_run_queue_is_exported(
    client: httpx.AsyncClient, app: FastAPI, prefix: str
) -> None:
    await client.post(f"/api/v1/run-queues/{prefix}/tasks", json={"payload": 1})
    await client.post(f"/api/v1/run-queues/{prefix}/pause")
    app_services(app).worker_metrics.sample()
    assert (await scrape_metrics(client))["penstock_queue_paused"][(prefix,)] == 1


@pytest.mark.parametrize("kind", ["resources/queues", "run-queues"])
@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_pausing_an_unknown_queue_creates_nothing(
    client: httpx.AsyncClient, prefix: str, kind: str, verb: str
) -> None:
    unknown = await client.post(f"/api/v1/{kind}/{prefix}/{verb}")
    assert "Did you mean" not in assert_problem(unknown, 404, "unknown_queue")
    assert_problem(await client.get(f"/api/v1/resources/queues/{prefix}"), 404, "unknown_queue")
    assert_problem(await client.get(f"/api/v1/run-queues/{prefix}"), 404, "unknown_queue")


async def test_an_unknown_queue_gets_the_most_similar_name_of_both_kinds(
    client: httpx.AsyncClient, prefix: str
) -> None:
    await push(client, 1, queue=f"{prefix}-orders")
    await client.post(f"/api/v1/run-queues/{prefix}-mails/tasks", json={"payload": 1})
    paths = {
        f"/api/v1/queues/{prefix}-oders/metrics": "orders",
        f"/api/v1/queues/{prefix}-mials/metrics": "mails",
        f"/api/v1/analytics/queue-ops?queue={prefix}-oders": "orders",
        f"/api/v1/analytics/queue-lag?queue={prefix}-oders": "orders",
        f"/api/v1/status/queues/{prefix}-order": "orders",
        f"/api/v1/resources/queues/{prefix}-ordersss": "orders",
        f"/api/v1/run-queues/{prefix}-mail": "mails",
    }
    for path, name in paths.items():
        response = await client.get(path)
        detail = assert_problem(response, 404, "unknown_queue")
        assert f"Did you mean '{prefix}-{name}'?" in detail, path
        assert response.json()["didYouMean"] == f"{prefix}-{name}"


async def test_a_queue_of_the_other_kind_is_named(client: httpx.AsyncClient, prefix: str) -> None:
    await client.post(f"/api/v1/run-queues/{prefix}/tasks", json={"payload": 1})
    response = await client.post(f"/api/v1/resources/queues/{prefix}/pause")
    assert f"'{prefix}' is a run queue." in assert_problem(response, 404, "unknown_queue")


async def test_a_pop_of_an_unknown_queue_gets_204_and_creates_no_queue(client: httpx.AsyncClient) -> None:
    for path in ("/api/v1/pop/queue/nope", "/api/v1/pop/queue/nope/partition/p"):
        assert (await client.get(path)).status_code == 204
        waiting = await client.get(path, params={"wait": "true", "timeout": 50})
        assert waiting.status_code == 204
    assert (await get(client, "/resources/queues"))["total"] == 0
