"""Dead tasks of run queues through the count_dead-dead_letter routes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from penstock.api.app import create_app
from penstock.config import Settings
from tests.integration.api.calls import assert_problem, get, push, scrape_metrics
from tests.integration.api.routes.test_dead_letter_routes import create_job, wait_until_ended


@pytest.fixture
def queue() -> str:
    return f"run-{uuid4()}"


async def create_dead_tasks(
    client: httpx.AsyncClient, queue: str, *payloads: Any, error: str = "boom"
) -> list[str]:
    """Enqueue tasks, nack each without a retry, and return their ids."""
    body = {"tasks": [{"payload": payload, "maxAttempts": 1} for payload in payloads]}
    (await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)).raise_for_status()
    dequeued = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": len(payloads)})
    tasks = dequeued.json()["tasks"]
    assert len(tasks) == len(payloads), dequeued.text
    for task in tasks:
        response = await client.post(
            f"/api/v1/tasks/{task['id']}/nack", json={"token": task["token"], "error": error, "retry": False}
        )
        assert response.status_code == 200, response.text
    return [task["id"] for task in tasks]


async def count_dead(client: httpx.AsyncClient, queue: str) -> int:
    rows = (await get(client, "/dlq/status", queue=queue))["groups"]
    return sum(row["deadLetters"] for row in rows)


async def test_dead_tasks_are_counted_listed_searched_and_grouped(
    client: httpx.AsyncClient, queue: str
) -> None:
    first, second = await create_dead_tasks(client, queue, {"n": 1}, {"n": 2}, error="timeout after 30 ms")
    await create_dead_tasks(client, queue, {"n": 3}, error="declined")
    [row] = (await get(client, "/dlq/status", queue=queue))["groups"]
    assert (row["kind"], row["consumerGroup"], row["deadLetters"]) == ("run", "__QUEUE_MODE__", 3)
    assert row["oldestFailedAt"] == (await get(client, f"/dlq/letters/{first}"))["failedAt"]
    consumers = (await client.get("/dlq-status")).json()["consumers"]
    assert [c["deadCount"] for c in consumers if c["channelId"] == queue] == [3]
    metrics = await scrape_metrics(client)
    assert metrics["dead_job_count"][(queue, "__QUEUE_MODE__")] == 3
    assert 0 <= metrics["penstock_dlq_oldest_message_age_seconds"][("__QUEUE_MODE__", queue)] < 60
    page = await get(client, "/dlq", queue=queue, limit=2)
    assert [dead_letter["letterId"] for dead_letter in page["messages"]] == [first, second]
    rest = await get(client, "/dlq", queue=queue, cursor=page["nextCursor"])
    assert [dead_letter["data"] for dead_letter in rest["messages"]] == [{"n": 3}]
    matches = await get(client, "/dlq", queue=queue, error="TIMEOUT", payload='"n":2')
    assert [dead_letter["data"] for dead_letter in matches["messages"]] == [{"n": 2}]
    often, seldom = (await get(client, "/dlq/groups", queue=queue, hours=2))["groups"]
    assert (often["error"], often["deadLetters"], sum(often["trend"])) == ("timeout after <n> ms", 2, 2)
    assert seldom["error"] == "declined"
    by_group = await get(client, "/dlq", queue=queue, errorGroup=seldom["errorGroup"])
    assert [dead_letter["data"] for dead_letter in by_group["messages"]] == [{"n": 3}]
    shown = await get(client, f"/dlq/letters/{first}")
    assert (shown["errorMessage"], shown["queue"], shown["kind"]) == ("timeout after 30 ms", queue, "run")
    refused = await client.get("/api/v1/dlq", params={"queue": queue, "partition": "p"})
    assert "no partitions" in assert_problem(refused, 422, "invalid_request")


async def test_one_dead_task_is_requeued_and_one_deleted(client: httpx.AsyncClient, queue: str) -> None:
    first, second, third = await create_dead_tasks(client, queue, 1, 2, 3)
    response = await client.post(f"/api/v1/dlq/letters/{first}/requeue")
    assert (response.status_code, response.json()["queue"]) == (200, queue)
    assert (await get(client, f"/tasks/{first}"))["state"] == "eligible"
    alive = await client.post(f"/api/v1/dlq/letters/{first}/requeue")
    assert "not dead" in assert_problem(alive, 404, "unknown_task")
    assert (await client.delete(f"/api/v1/dlq/letters/{second}")).json()["deleted"] == 1
    wrong = await client.delete(f"/channel/other/consumer/__QUEUE_MODE__/job/{third}")
    assert_problem(wrong, 404, "unknown_task")
    assert (await client.delete(f"/channel/{queue}/consumer/__QUEUE_MODE__/job/{third}")).status_code == 200
    assert await count_dead(client, queue) == 0


async def test_jobs_requeue_and_purge_dead_tasks(client: httpx.AsyncClient, queue: str) -> None:
    ids = await create_dead_tasks(client, queue, *range(6), error="timeout")
    await create_dead_tasks(client, queue, 6, 7, error="declined")
    dry = (await client.post("/api/v1/dlq/requeue", json={"queue": queue, "dryRun": True})).json()
    assert (dry["total"], dry["totalIsExact"]) == (8, True)
    requeued = await wait_until_ended(client, await create_job(client, "requeue", letterIds=ids[:2]))
    assert (requeued["state"], requeued["changed"]) == ("done", 2)
    declined = await wait_until_ended(
        client, await create_job(client, "purge", queue=queue, error="DECLINED", ratePerSecond=50)
    )
    assert (declined["changed"], declined["total"], declined["lookedAt"]) == (2, 2, 6)
    assert await count_dead(client, queue) == 4
    response = await client.delete(f"/channel/{queue}/consumer/__QUEUE_MODE__/dlq")
    assert (await wait_until_ended(client, response.json()))["changed"] == 4
    assert (await get(client, f"/run-queues/{queue}"))["depth"] == 2


async def test_tasks_of_several_run_queues_are_rejected(client: httpx.AsyncClient, queue: str) -> None:
    [first] = await create_dead_tasks(client, queue, 1)
    [second] = await create_dead_tasks(client, f"{queue}-2", 2)
    response = await client.post("/api/v1/dlq/purge", json={"letterIds": [first, second]})
    assert "several run queues" in assert_problem(response, 422, "invalid_request")
    mixed = await client.post("/api/v1/dlq/purge", json={"letterIds": [first, "7"]})
    assert_problem(mixed, 422, "invalid_request")


async def test_without_redis_durable_counts_are_returned_with_what_is_missing(settings: Settings) -> None:
    app_without_redis = create_app(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    transport = httpx.ASGITransport(app_without_redis)
    async with (
        app_without_redis.router.lifespan_context(app_without_redis),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        await push(client, 1)
        body = (await client.get("/dlq-status")).json()
        assert body["missing"].startswith("run queues: ")
        assert (await client.get("/api/v1/dlq", params={"queue": "unknown"})).status_code == 200
        purged = await client.post("/api/v1/dlq/purge", json={"queue": "unknown"})
        assert_problem(purged, 503, "redis_unavailable")
        assert (await client.post("/api/v1/dlq/purge", json={"queue": "q"})).status_code == 202
