"""Run queues over HTTP, on a real Redis."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services, assert_problem, configure, get, pop, push
from tests.waiting import wait_until_async


@pytest.fixture
def queue() -> str:
    return f"run-{uuid4().hex[:8]}"


async def enqueue(client: httpx.AsyncClient, queue: str, *payloads: Any, **task: Any) -> list[str]:
    body = {"tasks": [{"payload": payload, **task} for payload in payloads]}
    response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
    assert response.status_code == 201, response.text
    return [task["id"] for task in response.json()["tasks"]]


async def dequeue(client: httpx.AsyncClient, queue: str, **options: Any) -> list[dict[str, Any]]:
    response = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json=options)
    assert response.status_code == 200, response.text
    tasks: list[dict[str, Any]] = response.json()["tasks"]
    return tasks


async def post_verb(
    client: httpx.AsyncClient, task: dict[str, Any], verb: str, **fields: Any
) -> httpx.Response:
    return await client.post(f"/api/v1/tasks/{task['id']}/{verb}", json={"token": task["token"], **fields})


async def change_task(
    client: httpx.AsyncClient, task: dict[str, Any], verb: str, **fields: Any
) -> dict[str, Any]:
    response = await post_verb(client, task, verb, **fields)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


async def test_a_task_is_enqueued_dequeued_and_acked(client: httpx.AsyncClient, queue: str) -> None:
    response = await client.post(
        f"/api/v1/run-queues/{queue}/tasks", json={"payload": {"n": 1}, "priority": 3, "maxAttempts": 2}
    )
    assert response.status_code == 201
    [enqueued] = response.json()["tasks"]
    assert enqueued["status"] == "queued"
    waiting = await get(client, f"/tasks/{enqueued['id']}")
    assert (waiting["state"], waiting["queue"], waiting["payload"]) == ("eligible", queue, {"n": 1})

    [task] = await dequeue(client, queue, limit=5, visibilityMs=60_000, worker="w1")
    assert {
        name: task[name] for name in ("id", "queue", "payload", "attempt", "maxAttempts", "priority")
    } == {
        "id": enqueued["id"],
        "queue": queue,
        "payload": {"n": 1},
        "attempt": 1,
        "maxAttempts": 2,
        "priority": 3,
    }
    assert task["enqueuedAt"] <= task["startedAt"] < task["heldUntil"]
    running = await get(client, f"/tasks/{enqueued['id']}")
    assert (running["state"], running["worker"]) == ("running", "w1")
    assert (await get(client, f"/run-queues/{queue}"))["running"] == 1
    assert await change_task(client, task, "ack") == {"id": enqueued["id"], "state": None, "dueAt": None}
    assert_problem(await client.get(f"/api/v1/tasks/{enqueued['id']}"), 404, "unknown_task")
    assert await dequeue(client, queue) == []


async def test_a_repeated_idempotency_key_is_a_duplicate(client: httpx.AsyncClient, queue: str) -> None:
    [first] = await enqueue(client, queue, 1, idempotencyKey="k")
    response = await client.post(
        f"/api/v1/run-queues/{queue}/tasks", json={"payload": 2, "idempotencyKey": "k"}
    )
    assert response.json()["tasks"] == [{"id": first, "status": "duplicate"}]


async def test_a_failed_attempt_is_retried_and_then_dead_and_can_be_redriven(
    client: httpx.AsyncClient, queue: str
) -> None:
    [task_id] = await enqueue(client, queue, "work", maxAttempts=2)
    [task] = await dequeue(client, queue)
    again = await change_task(client, task, "nack", error="no", delayMs=0)
    assert again["state"] in ("eligible", "delayed")
    [task] = await dequeue(client, queue, waitMs=5_000)
    assert task["attempt"] == 2
    assert (await change_task(client, task, "nack", error="still no"))["state"] == "dead"

    path = f"/run-queues/{queue}/dead-letters"
    dead = await get(client, path)
    assert (dead["total"], dead["next"]) == (1, None)
    [dead_task] = dead["tasks"]
    assert (dead_task["id"], dead_task["error"], dead_task["payload"]) == (task_id, "still no", "work")
    body = {"ids": [task_id, "unknown-0"]}
    redriven = (await client.post(f"/api/v1{path}/redrive", json=body)).json()
    assert redriven["redriven"] == 1
    assert [result["success"] for result in redriven["results"]] == [True, False]
    [task] = await dequeue(client, queue)
    assert (await change_task(client, task, "nack", retry=False))["state"] == "dead"
    assert (await client.post(f"/api/v1{path}/redrive", json={"all": True})).json() == {"redriven": 1}
    [task] = await dequeue(client, queue)
    await change_task(client, task, "nack", retry=False)
    deleted = await client.request("DELETE", f"/api/v1{path}", json={"all": True})
    assert deleted.json() == {"deleted": 1}
    assert (await get(client, path))["tasks"] == []


async def test_a_redrive_without_ids_or_all_is_rejected(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, 1)
    path = f"/api/v1/run-queues/{queue}/dead-letters"
    bodies: list[dict[str, Any]] = [
        {},
        {"ids": []},
        {"ids": ["a"], "all": True},
        {"all": False},
        {"every": 1},
    ]
    for body in bodies:
        assert_problem(await client.post(f"{path}/redrive", json=body), 422, "invalid_request")
        assert_problem(await client.request("DELETE", path, json=body), 422, "invalid_request")


async def test_a_stale_token_changes_nothing(client: httpx.AsyncClient, queue: str) -> None:
    [task_id] = await enqueue(client, queue, 1)
    [task] = await dequeue(client, queue)
    stale = {**task, "token": task["token"] + 1}
    for verb in ("ack", "nack", "heartbeat", "give-back"):
        assert_problem(await post_verb(client, stale, verb), 409, "lease_lost")
        assert_problem(await post_verb(client, {**task, "id": "nonsense"}, verb), 404, "unknown_task")
    assert (await get(client, f"/tasks/{task_id}"))["state"] == "running"
    held = await change_task(client, task, "heartbeat", visibilityMs=3_600_000)
    assert held["dueAt"] > task["heldUntil"]
    assert (await change_task(client, task, "give-back"))["state"] == "eligible"
    [again] = await dequeue(client, queue)
    assert (again["id"], again["attempt"]) == (task_id, 1)


async def test_one_request_changes_many_tasks_each_on_its_own(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, *range(6))
    tasks = await dequeue(client, queue, limit=6)
    leases = [{"id": task["id"], "token": task["token"]} for task in tasks]
    stale = {**leases[0], "token": leases[0]["token"] + 1}
    for verb, items in (
        ("heartbeat", [stale, *leases]),
        ("ack", [leases[0], stale, leases[1]]),
        ("nack", [leases[2], leases[3]]),
        ("give-back", leases[4:]),
    ):
        response = await client.post(f"/api/v1/tasks/{verb}", json={"tasks": items})
        results = response.json()["results"]
        assert [result["id"] for result in results] == [lease["id"] for lease in items]
        successes = [lease is not stale for lease in items]
        assert [result["success"] for result in results] == successes, results
        assert all(
            result["code"] in ("lease_lost", "unknown_task") for result in results if not result["success"]
        )
    state = await get(client, f"/run-queues/{queue}")
    assert (state["depth"] + state["delayed"], state["running"]) == (4, 0)


async def test_a_waiting_dequeue_is_woken_by_an_enqueue(
    client: httpx.AsyncClient, app: FastAPI, queue: str
) -> None:
    await enqueue(client, queue, 0)
    await dequeue(client, queue)
    waiting = asyncio.create_task(dequeue(client, queue, waitMs=20_000, limit=2))

    async def parked() -> bool:
        return bool(app_services(app).run_queues.waiting_dequeues)

    await wait_until_async(parked, 10, "the dequeue waits")
    await enqueue(client, queue, "late")
    async with asyncio.timeout(deadline_s(5)):
        assert [task["payload"] for task in await waiting] == ["late"]


async def test_a_queue_limit_is_enforced_and_reported(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, *range(5))
    limits = f"/api/v1/run-queues/{queue}/limits"
    assert (await client.put(limits, json={"concurrency": 2})).json()["concurrency"] == 2
    assert len(await dequeue(client, queue, limit=5)) == 2
    assert await dequeue(client, queue, limit=5) == []
    state = await get(client, f"/run-queues/{queue}")
    assert (state["depth"], state["delayed"], state["running"]) == (3, 0, 2)
    assert (await client.put(limits, json={"concurrency": None})).json()["concurrency"] is None
    assert len(await dequeue(client, queue, limit=5)) == 3


async def test_the_environment_has_a_limit_of_its_own(client: httpx.AsyncClient, queue: str) -> None:
    environment = {"organization": "acme", "project": "shop", "environment": f"env-{queue}"}
    assert (await client.post("/api/v1/environments", json=environment)).status_code == 201
    headers = {"X-Penstock-Environment": "/".join(environment.values())}
    path = f"/api/v1/environments/env-{queue}/run-limits"
    limits = await client.put(path, json={"concurrency": 7, "burst": 2.0}, headers=headers)
    assert limits.status_code == 200
    response_body = (await client.get(path, headers=headers)).json()
    assert (response_body["concurrency"], response_body["burst"], response_body["running"]) == (7, 2.0, 0)
    for response in (await client.get(path), await client.put(path, json={"concurrency": 1})):
        assert_problem(response, 404, "unknown_environment")
    own_path = "/api/v1/environments/-/run-limits"
    assert (await client.get(own_path, headers=headers)).json()["concurrency"] == 7


async def test_a_paused_queue_hands_out_nothing(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, 1)
    paused = await client.post(f"/api/v1/run-queues/{queue}/pause")
    assert paused.json()["paused"] is True
    assert await dequeue(client, queue) == []
    await client.post(f"/api/v1/run-queues/{queue}/resume")
    assert len(await dequeue(client, queue)) == 1


async def test_queues_are_listed_by_name_and_found_by_substring(
    client: httpx.AsyncClient, queue: str
) -> None:
    for name in (f"{queue}-b", f"{queue}-a"):
        await enqueue(client, name, 1)
    response_body = await get(client, "/run-queues", search=queue.upper())
    assert [state["name"] for state in response_body["queues"]] == [f"{queue}-a", f"{queue}-b"]
    assert (response_body["total"], response_body["queues"][0]["depth"]) == (2, 1)
    page = await get(client, "/run-queues", search=queue, limit=1, offset=1)
    assert [state["name"] for state in page["queues"]] == [f"{queue}-b"]
    assert_problem(await client.get(f"/api/v1/run-queues/{queue}-c"), 404, "unknown_queue")


async def test_a_dequeue_of_any_queue_reaches_every_queue(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, "mine")

    async def has_dequeued() -> bool:
        response = await client.post("/api/v1/run-queues/dequeue", json={"limit": 1000})
        return queue in [task["queue"] for task in response.json()["tasks"]]

    await wait_until_async(has_dequeued, 10, "it is among what is has_dequeued")


INVALID_TASKS: list[tuple[dict[str, Any], str]] = [
    ({}, "payload"),
    ({"tasks": []}, "tasks"),
    ({"payload": 1, "tasks": [{"payload": 2}]}, "not both"),
    ({"payload": 1, "priority": 10}, "priority must"),
    ({"payload": 1, "delayms": 5}, "delayms"),
    ({"tasks": [{"payload": 1}, {"payload": 2, "ttlMs": 0}]}, "tasks[1].ttlMs"),
    ({"payload": 1, "maxAttempts": 0}, "maxAttempts"),
    ({"payload": 1, "idempotencyKey": ""}, "idempotencyKey"),
]


async def test_an_invalid_task_is_rejected_with_its_field_and_nothing_is_enqueued(
    client: httpx.AsyncClient, queue: str
) -> None:
    for body, expected in INVALID_TASKS:
        response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
        assert expected in assert_problem(response, 422, "invalid_request")
    assert_problem(await client.get(f"/api/v1/run-queues/{queue}"), 404, "unknown_queue")


async def test_other_invalid_bodies_are_rejected(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, 1)
    path = f"/api/v1/run-queues/{queue}"
    for body in ({"limit": 0}, {"limit": 1001}, {"waitMs": -1}, {"visibilityMs": 5}, {"batch": 3}):
        assert_problem(await client.post(f"{path}/dequeue", json=body), 422, "invalid_request")
    assert_problem(await client.put(f"{path}/limits", json={}), 422, "invalid_request")
    assert_problem(await client.put(f"{path}/limits", json={"concurrency": 0}), 422, "invalid_request")
    assert_problem(await client.post(f"{path}/tasks", content=b"{"), 400, "malformed_body")
    assert_problem(
        await client.post("/api/v1/run-queues/%00/tasks", json={"payload": 1}), 422, "invalid_request"
    )
    [task] = await dequeue(client, queue)
    assert_problem(await client.post(f"/api/v1/tasks/{task['id']}/ack", json={}), 422, "invalid_request")
    assert_problem(await post_verb(client, {**task, "token": "x"}, "ack"), 422, "invalid_request")


async def test_a_name_belongs_to_a_durable_queue_or_to_a_run_queue(
    client: httpx.AsyncClient, queue: str
) -> None:
    durable, run = f"{queue}-durable", f"{queue}-run"
    await push(client, 1, queue=durable)
    await enqueue(client, run, 1)
    path = f"/api/v1/run-queues/{durable}"
    assert "durable" in assert_problem(
        await client.post(f"{path}/tasks", json={"payload": 1}), 409, "wrong_state"
    )
    assert_problem(await client.post(f"{path}/pause"), 409, "wrong_state")
    assert_problem(await client.put(f"{path}/limits", json={"concurrency": 1}), 409, "wrong_state")

    pushed = await client.post("/api/v1/push", json={"items": [{"queue": run, "payload": 1}]})
    assert "run queue" in assert_problem(pushed, 409, "wrong_state")
    operations = [{"type": "push", "items": [{"queue": run, "payload": 1}]}]
    failed = await client.post("/api/v1/transaction", json={"operations": operations})
    assert (failed.status_code, "run queue" in failed.json()["error"]) == (409, True)
    assert_problem(await configure(client, run, leaseTime=5), 409, "wrong_state")
    assert_problem(await client.get(f"/api/v1/pop/queue/{run}"), 409, "wrong_state")
    items = [{"queue": name, "payload": name} for name in (run, durable)]
    mixed = await client.post("/api/v1/push", json={"items": items})
    assert [item["status"] for item in mixed.json()] == ["failed", "queued"]
    assert [message["data"] for message in await pop(client, durable, batch=5)] == [1, durable]


async def test_an_empty_queue_can_be_deleted_and_its_name_used_for_messages(
    client: httpx.AsyncClient, queue: str
) -> None:
    path = f"/api/v1/run-queues/{queue}"
    assert_problem(await client.delete(path), 404, "unknown_queue")
    await enqueue(client, queue, 1)
    await client.put(f"{path}/limits", json={"concurrency": 3})
    assert "still has tasks" in assert_problem(await client.delete(path), 409, "wrong_state")
    [task] = await dequeue(client, queue)
    assert_problem(await client.delete(path), 409, "wrong_state")
    await change_task(client, task, "nack", retry=False)
    assert_problem(await client.delete(path), 409, "wrong_state")
    assert_problem(await client.get(f"/api/v1/pop/queue/{queue}"), 409, "wrong_state")
    await client.request("DELETE", f"{path}/dead-letters", json={"all": True})
    assert (await client.delete(path)).json() == {"deleted": True, "queue": queue}
    assert_problem(await client.get(path), 404, "unknown_queue")
    await push(client, "message", queue=queue)
    assert len(await pop(client, queue)) == 1


async def test_without_redis_run_queues_fail_and_durable_queues_work(settings: Settings, queue: str) -> None:
    app_without_redis = create_app(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    transport = httpx.ASGITransport(app_without_redis, raise_app_exceptions=False)
    async with (
        app_without_redis.router.lifespan_context(app_without_redis),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"payload": 1})
        assert "Redis" in assert_problem(response, 503, "redis_unavailable")
        assert response.headers["retry-after"] == "1"
        for path in (f"/api/v1/run-queues/{queue}", "/api/v1/run-queues", "/api/v1/tasks/a-0"):
            assert (await client.get(path)).status_code in (404, 503), path
        await push(client, 1, queue=queue)
        assert len(await pop(client, queue)) == 1


async def test_the_series_of_a_run_queue_exist_before_their_first_point(
    client: httpx.AsyncClient, queue: str
) -> None:
    await enqueue(client, queue, 1)
    response = await client.get(f"/api/v1/queues/{queue}/metrics")
    assert response.status_code != 404, response.text


@pytest.mark.parametrize(("load_management", "status"), [(True, 429), (False, 201)])
async def test_a_request_that_waited_too_long_for_its_batch_is_refused(
    settings: Settings, queue: str, load_management: bool, status: int
) -> None:
    # No batch starts within a fraction of a microsecond, so every request is late.
    update = {"load_wait_s": 1e-9, "load_management": load_management}
    app = create_app(settings.model_copy(update=update))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        response = await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"payload": 1})
        assert response.status_code == status
        if load_management:
            assert_problem(response, 429, "overloaded")
            assert response.headers["retry-after"] == "1"
