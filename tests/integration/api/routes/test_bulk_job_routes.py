"""Jobs on messages of durable queues and on waiting tasks of run queues."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.api import shared_app
from tests.integration.api.calls import ack, assert_problem, get, pop, pop_payloads, push
from tests.integration.api.routes.test_dead_letter_routes import wait_until_ended

app = shared_app.app


@pytest.fixture
def queue() -> str:
    return f"queue-{uuid4()}"


async def run_job(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Create a job, wait for its end and return it. A dry run says the same total before."""
    preview = await client.post("/api/v1/jobs", json={**body, "dryRun": True})
    assert preview.status_code == 200, preview.text
    created = await client.post("/api/v1/jobs", json=body)
    assert created.status_code == 202, created.text
    assert created.headers["location"] == f"/api/v1/jobs/{created.json()['id']}"
    assert (preview.json()["total"], preview.json()["totalIsExact"]) == (
        created.json()["total"],
        created.json()["totalIsExact"],
    )
    return await wait_until_ended(client, created.json())


async def enqueue(client: httpx.AsyncClient, queue: str, *payloads: Any, **task: Any) -> None:
    body = {"tasks": [{"payload": payload, **task} for payload in payloads]}
    response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
    assert response.is_success, response.text


async def test_messages_go_to_the_dead_letters_of_one_group(client: httpx.AsyncClient, queue: str) -> None:
    await push(client, *({"n": number} for number in range(6)), queue=queue)
    [first, *_] = await pop(client, queue, consumerGroup="g", batch=1)
    await ack(client, first, consumerGroup="g")
    leased = await pop(client, queue, consumerGroup="g", batch=2)
    await pop(client, queue, consumerGroup="other", batch=1)
    body = {"subject": "messages", "kind": "dead_letter", "queue": queue, "consumerGroup": "g"}

    job = await run_job(client, **body, reason="bad deploy")

    assert (job["state"], job["total"], job["changed"], job["skipped"]) == ("done", 5, 3, 2)
    dead_letters = (await get(client, "/dlq", queue=queue))["messages"]
    assert sorted(letter["data"]["n"] for letter in dead_letters) == [3, 4, 5]
    assert {(letter["errorMessage"], letter["consumerGroup"]) for letter in dead_letters} == {
        ("bad deploy", "g")
    }
    for message in leased:
        await ack(client, message, consumerGroup="g")
    assert await pop(client, queue, consumerGroup="g", batch=10) == []
    assert (await run_job(client, **body))["changed"] == 0


async def test_messages_are_deleted_by_payload_and_partition(client: httpx.AsyncClient, queue: str) -> None:
    await push(client, {"card": 1}, {"order": 2}, {"card": 3}, queue=queue, partition="a")
    await push(client, {"card": 4}, queue=queue, partition="b")
    selection = {"subject": "messages", "kind": "purge", "queue": queue}

    job = await run_job(client, **selection, partition="a", payload='"card"')
    assert (job["total"], job["changed"], job["lookedAt"], job["skipped"]) == (2, 2, 3, 0)
    assert await pop_payloads(client, queue, partition="a", batch=10) == [{"order": 2}]

    job = await run_job(client, **selection)
    assert (job["total"], job["changed"], job["skipped"]) == (2, 1, 1), "the popped message is leased"
    assert await pop(client, queue, batch=10) == []


async def test_a_job_covers_messages_pushed_within_its_times(client: httpx.AsyncClient, queue: str) -> None:
    for number in range(3):
        await push(client, number, queue=queue)
    times = sorted(row["createdAt"] for row in (await get(client, "/messages", queue=queue))["messages"])
    start, end = {"from": times[1]}, {"to": times[2]}
    job = await run_job(client, subject="messages", kind="purge", queue=queue, **start, **end)
    assert (job["total"], job["changed"]) == (1, 1)
    assert await pop_payloads(client, queue, batch=10) == [0, 2]


async def test_waiting_tasks_are_deleted_or_declared_dead(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, {"n": 0})
    dequeued = (await client.post(f"/api/v1/run-queues/{queue}/dequeue", json={"limit": 1})).json()["tasks"]
    await enqueue(client, queue, {"n": 1}, {"n": 2})
    await enqueue(client, queue, {"n": 3}, {"late": 4}, delayMs=3_600_000)
    selection = {"subject": "tasks", "queue": queue}

    job = await run_job(client, **selection, kind="dead_letter", payload='"n":', reason="bad deploy")
    assert (job["state"], job["total"], job["changed"], job["skipped"]) == ("done", 3, 3, 0)
    dead_letters = (await get(client, "/dlq", queue=queue))["messages"]
    assert sorted(letter["data"]["n"] for letter in dead_letters) == [1, 2, 3]
    assert {letter["errorMessage"] for letter in dead_letters} == {"bad deploy"}

    assert (await run_job(client, **selection, kind="purge", taskState="eligible"))["changed"] == 0
    job = await run_job(client, **selection, kind="purge", taskState="delayed")
    assert (job["total"], job["changed"]) == (1, 1)
    state = await get(client, f"/run-queues/{queue}")
    assert (state["depth"], state["delayed"], state["running"], state["dead"]) == (0, 0, 1, 3)
    assert len(dequeued) == 1


async def test_bad_jobs_are_refused(client: httpx.AsyncClient, queue: str) -> None:
    await push(client, 1, queue=queue)
    messages = {"subject": "messages", "queue": queue}
    for body in (
        {**messages, "kind": "requeue"},
        {**messages, "kind": "dead_letter"},
        {**messages, "kind": "purge", "reason": "x"},
        {**messages, "kind": "purge", "taskState": "eligible"},
        {**messages, "kind": "purge", "ratePerSecond": 0},
        {**messages, "kind": "purge", "from": "yesterday"},
        {"subject": "messages", "kind": "purge"},
        {"subject": "letters", "kind": "purge", "queue": queue},
    ):
        refused = await client.post("/api/v1/jobs", json=body)
        assert refused.status_code in (400, 422), body
    unknown = {"kind": "purge", "queue": "none"}
    for subject in ("messages", "tasks"):
        response = await client.post("/api/v1/jobs", json={**unknown, "subject": subject})
        assert_problem(response, 404, "unknown_queue")
    no_group = {**messages, "kind": "purge", "consumerGroup": "nobody"}
    assert_problem(await client.post("/api/v1/jobs", json=no_group), 404, "unknown_group")
    assert await pop_payloads(client, queue) == [1]
