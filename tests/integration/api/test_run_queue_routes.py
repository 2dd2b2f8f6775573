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
from tests.integration.api.calls import configure, get, pop, problem, push
from tests.waiting import wait_until_async


@pytest.fixture
def queue() -> str:
    return f"run-{uuid4().hex[:8]}"


async def enqueue(client: httpx.AsyncClient, queue: str, *payloads: Any, **task: Any) -> list[str]:
    body = {"tasks": [{"payload": payload, **task} for payload in payloads]}
    answer = await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
    assert answer.status_code == 201, answer.text
    return [task["id"] for task in answer.json()["tasks"]]


async def dequeue(client: httpx.AsyncClient, queue: str, **asked: Any) -> list[dict[str, Any]]:
    answer = await client.post(f"/api/v1/run-queues/{queue}/dequeue", json=asked)
    assert answer.status_code == 200, answer.text
    tasks: list[dict[str, Any]] = answer.json()["tasks"]
    return tasks


async def settle(client: httpx.AsyncClient, task: dict[str, Any], verb: str, **more: Any) -> httpx.Response:
    return await client.post(f"/api/v1/tasks/{task['id']}/{verb}", json={"token": task["token"], **more})


async def settled(client: httpx.AsyncClient, task: dict[str, Any], verb: str, **more: Any) -> dict[str, Any]:
    answer = await settle(client, task, verb, **more)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def test_a_task_is_enqueued_dequeued_and_acked(client: httpx.AsyncClient, queue: str) -> None:
    answer = await client.post(
        f"/api/v1/run-queues/{queue}/tasks", json={"payload": {"n": 1}, "priority": 3, "maxAttempts": 2}
    )
    assert answer.status_code == 201
    [made] = answer.json()["tasks"]
    assert made["status"] == "queued"
    waiting = await get(client, f"/tasks/{made['id']}")
    assert (waiting["state"], waiting["queue"], waiting["payload"]) == ("eligible", queue, {"n": 1})

    [task] = await dequeue(client, queue, limit=5, visibilityMs=60_000, worker="w1")
    assert {
        name: task[name] for name in ("id", "queue", "payload", "attempt", "maxAttempts", "priority")
    } == {
        "id": made["id"],
        "queue": queue,
        "payload": {"n": 1},
        "attempt": 1,
        "maxAttempts": 2,
        "priority": 3,
    }
    assert task["enqueuedAt"] <= task["startedAt"] < task["heldUntil"]
    running = await get(client, f"/tasks/{made['id']}")
    assert (running["state"], running["worker"]) == ("running", "w1")
    assert (await get(client, f"/run-queues/{queue}"))["running"] == 1
    assert await settled(client, task, "ack") == {"id": made["id"], "state": None, "dueAt": None}
    problem(await client.get(f"/api/v1/tasks/{made['id']}"), 404, "unknown_task")
    assert await dequeue(client, queue) == []


async def test_a_key_that_was_seen_is_a_duplicate(client: httpx.AsyncClient, queue: str) -> None:
    [first] = await enqueue(client, queue, 1, idempotencyKey="k")
    answer = await client.post(
        f"/api/v1/run-queues/{queue}/tasks", json={"payload": 2, "idempotencyKey": "k"}
    )
    assert answer.json()["tasks"] == [{"id": first, "status": "duplicate"}]


async def test_a_failed_attempt_is_retried_and_then_dead_and_can_be_redriven(
    client: httpx.AsyncClient, queue: str
) -> None:
    [task_id] = await enqueue(client, queue, "work", maxAttempts=2)
    [task] = await dequeue(client, queue)
    again = await settled(client, task, "nack", error="no", delayMs=0)
    assert again["state"] in ("eligible", "delayed")
    [task] = await dequeue(client, queue, waitMs=5_000)
    assert task["attempt"] == 2
    assert (await settled(client, task, "nack", error="still no"))["state"] == "dead"

    path = f"/run-queues/{queue}/dead-letters"
    dead = await get(client, path)
    assert (dead["total"], dead["next"]) == (1, None)
    [letter] = dead["tasks"]
    assert (letter["id"], letter["error"], letter["payload"]) == (task_id, "still no", "work")
    body = {"ids": [task_id, "nobody-0"]}
    redriven = (await client.post(f"/api/v1{path}/redrive", json=body)).json()
    assert redriven["redriven"] == 1
    assert [result["success"] for result in redriven["results"]] == [True, False]
    [task] = await dequeue(client, queue)
    assert (await settled(client, task, "nack", retry=False))["state"] == "dead"
    assert (await client.post(f"/api/v1{path}/redrive", json={"all": True})).json() == {"redriven": 1}
    [task] = await dequeue(client, queue)
    await settled(client, task, "nack", retry=False)
    deleted = await client.request("DELETE", f"/api/v1{path}", json={"all": True})
    assert deleted.json() == {"deleted": 1}
    assert (await get(client, path))["tasks"] == []


async def test_which_dead_letters_must_be_said(client: httpx.AsyncClient, queue: str) -> None:
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
        problem(await client.post(f"{path}/redrive", json=body), 422, "invalid_request")
        problem(await client.request("DELETE", path, json=body), 422, "invalid_request")


async def test_a_stale_token_changes_nothing(client: httpx.AsyncClient, queue: str) -> None:
    [task_id] = await enqueue(client, queue, 1)
    [task] = await dequeue(client, queue)
    stale = {**task, "token": task["token"] + 1}
    for verb in ("ack", "nack", "heartbeat", "give-back"):
        problem(await settle(client, stale, verb), 409, "lease_lost")
        problem(await settle(client, {**task, "id": "nonsense"}, verb), 404, "unknown_task")
    assert (await get(client, f"/tasks/{task_id}"))["state"] == "running"
    held = await settled(client, task, "heartbeat", visibilityMs=3_600_000)
    assert held["dueAt"] > task["heldUntil"]
    assert (await settled(client, task, "give-back"))["state"] == "eligible"
    [again] = await dequeue(client, queue)
    assert (again["id"], again["attempt"]) == (task_id, 1)


async def test_many_are_settled_with_one_request_each_on_its_own(
    client: httpx.AsyncClient, queue: str
) -> None:
    await enqueue(client, queue, *range(6))
    tasks = await dequeue(client, queue, limit=6)
    leases = [{"id": task["id"], "token": task["token"]} for task in tasks]
    stale = {**leases[0], "token": leases[0]["token"] + 1}
    for verb, chosen in (
        ("heartbeat", [stale, *leases]),
        ("ack", [leases[0], stale, leases[1]]),
        ("nack", [leases[2], leases[3]]),
        ("give-back", leases[4:]),
    ):
        answer = await client.post(f"/api/v1/tasks/{verb}", json={"tasks": chosen})
        results = answer.json()["results"]
        assert [result["id"] for result in results] == [lease["id"] for lease in chosen]
        expected = [lease is not stale for lease in chosen]
        assert [result["success"] for result in results] == expected, results
        assert all(
            result["code"] in ("lease_lost", "unknown_task") for result in results if not result["success"]
        )
    state = await get(client, f"/run-queues/{queue}")
    assert (state["depth"] + state["delayed"], state["running"]) == (4, 0)


async def test_a_dequeue_that_waits_is_woken(client: httpx.AsyncClient, app: FastAPI, queue: str) -> None:
    await enqueue(client, queue, 0)
    await dequeue(client, queue)
    waiting = asyncio.create_task(dequeue(client, queue, waitMs=20_000, limit=2))

    async def parked() -> bool:
        return bool(app.state.services.run_queues.waiting_dequeues)

    await wait_until_async(parked, 10, "the dequeue waits")
    await enqueue(client, queue, "late")
    async with asyncio.timeout(5):
        assert [task["payload"] for task in await waiting] == ["late"]


async def test_limits_hold_and_are_told(client: httpx.AsyncClient, queue: str) -> None:
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
    path = f"/api/v1/environments/env-{queue}/run-limits"
    assert (await client.put(path, json={"concurrency": 7, "burst": 2.0})).status_code == 200
    found = (await client.get(path)).json()
    assert (found["concurrency"], found["burst"], found["running"]) == (7, 2.0, 0)


async def test_a_paused_queue_hands_out_nothing(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, 1)
    paused = await client.post(f"/api/v1/run-queues/{queue}/pause")
    assert paused.json()["paused"] is True
    assert await dequeue(client, queue) == []
    await client.post(f"/api/v1/run-queues/{queue}/resume")
    assert len(await dequeue(client, queue)) == 1


async def test_queues_are_listed_by_name_and_found_by_a_part_of_it(
    client: httpx.AsyncClient, queue: str
) -> None:
    for name in (f"{queue}-b", f"{queue}-a"):
        await enqueue(client, name, 1)
    found = await get(client, "/run-queues", search=queue.upper())
    assert [state["name"] for state in found["queues"]] == [f"{queue}-a", f"{queue}-b"]
    assert (found["total"], found["queues"][0]["depth"]) == (2, 1)
    page = await get(client, "/run-queues", search=queue, limit=1, offset=1)
    assert [state["name"] for state in page["queues"]] == [f"{queue}-b"]
    problem(await client.get(f"/api/v1/run-queues/{queue}-c"), 404, "unknown_queue")


async def test_any_queue_can_be_dequeued(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, "mine")

    async def taken() -> bool:
        answer = await client.post("/api/v1/run-queues/dequeue", json={"limit": 1000})
        return queue in [task["queue"] for task in answer.json()["tasks"]]

    await wait_until_async(taken, 10, "it is among what is taken")


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({}, "payload"),
    ({"tasks": []}, "tasks"),
    ({"payload": 1, "tasks": [{"payload": 2}]}, "not both"),
    ({"payload": 1, "priority": 10}, "$.priority"),
    ({"payload": 1, "delayms": 5}, "delayms"),
    ({"tasks": [{"payload": 1}, {"payload": 2, "ttlMs": 0}]}, "$.tasks[1].ttlMs"),
    ({"payload": 1, "maxAttempts": 0}, "$.maxAttempts"),
    ({"payload": 1, "idempotencyKey": ""}, "$.idempotencyKey"),
]


async def test_a_task_that_cannot_be_is_refused_by_name_and_nothing_is_enqueued(
    client: httpx.AsyncClient, queue: str
) -> None:
    for body, told in IMPOSSIBLE:
        answer = await client.post(f"/api/v1/run-queues/{queue}/tasks", json=body)
        assert told in problem(answer, 422, "invalid_request")
    problem(await client.get(f"/api/v1/run-queues/{queue}"), 404, "unknown_queue")


async def test_other_bodies_that_do_not_fit_are_refused(client: httpx.AsyncClient, queue: str) -> None:
    await enqueue(client, queue, 1)
    path = f"/api/v1/run-queues/{queue}"
    for body in ({"limit": 0}, {"limit": 1001}, {"waitMs": -1}, {"visibilityMs": 5}, {"batch": 3}):
        problem(await client.post(f"{path}/dequeue", json=body), 422, "invalid_request")
    problem(await client.put(f"{path}/limits", json={}), 422, "invalid_request")
    problem(await client.put(f"{path}/limits", json={"concurrency": 0}), 422, "invalid_request")
    problem(await client.post(f"{path}/tasks", content=b"{"), 400, "malformed_body")
    problem(await client.post("/api/v1/run-queues/%00/tasks", json={"payload": 1}), 422, "invalid_request")
    [task] = await dequeue(client, queue)
    problem(await client.post(f"/api/v1/tasks/{task['id']}/ack", json={}), 422, "invalid_request")
    problem(await settle(client, {**task, "token": "x"}, "ack"), 422, "invalid_request")


async def test_a_name_is_a_durable_queue_s_or_a_run_queue_s(client: httpx.AsyncClient, queue: str) -> None:
    durable, run = f"{queue}-durable", f"{queue}-run"
    await push(client, 1, queue=durable)
    await enqueue(client, run, 1)
    path = f"/api/v1/run-queues/{durable}"
    assert "durable" in problem(await client.post(f"{path}/tasks", json={"payload": 1}), 409, "wrong_state")
    problem(await client.post(f"{path}/pause"), 409, "wrong_state")
    problem(await client.put(f"{path}/limits", json={"concurrency": 1}), 409, "wrong_state")

    pushed = await client.post("/api/v1/push", json={"items": [{"queue": run, "payload": 1}]})
    assert "run queue" in problem(pushed, 409, "wrong_state")
    operations = [{"type": "push", "items": [{"queue": run, "payload": 1}]}]
    failed = await client.post("/api/v1/transaction", json={"operations": operations})
    assert (failed.status_code, "run queue" in failed.json()["error"]) == (409, True)
    problem(await configure(client, run, leaseTime=5), 409, "wrong_state")
    problem(await client.get(f"/api/v1/pop/queue/{run}"), 409, "wrong_state")
    items = [{"queue": name, "payload": name} for name in (run, durable)]
    mixed = await client.post("/api/v1/push", json={"items": items})
    assert [item["status"] for item in mixed.json()] == ["failed", "queued"]
    assert [message["data"] for message in await pop(client, durable, batch=5)] == [1, durable]


async def test_an_empty_queue_can_be_deleted_and_its_name_used_for_messages(
    client: httpx.AsyncClient, queue: str
) -> None:
    path = f"/api/v1/run-queues/{queue}"
    problem(await client.delete(path), 404, "unknown_queue")
    await enqueue(client, queue, 1)
    await client.put(f"{path}/limits", json={"concurrency": 3})
    assert "still has tasks" in problem(await client.delete(path), 409, "wrong_state")
    [task] = await dequeue(client, queue)
    problem(await client.delete(path), 409, "wrong_state")
    await settled(client, task, "nack", retry=False)
    problem(await client.delete(path), 409, "wrong_state")
    problem(await client.get(f"/api/v1/pop/queue/{queue}"), 409, "wrong_state")
    await client.request("DELETE", f"{path}/dead-letters", json={"all": True})
    assert (await client.delete(path)).json() == {"deleted": True, "queue": queue}
    problem(await client.get(path), 404, "unknown_queue")
    await push(client, "message", queue=queue)
    assert len(await pop(client, queue)) == 1


async def test_without_redis_run_queues_say_so_and_durable_queues_go_on(
    settings: Settings, queue: str
) -> None:
    away = create_app(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    transport = httpx.ASGITransport(away, raise_app_exceptions=False)
    async with (
        away.router.lifespan_context(away),
        httpx.AsyncClient(transport=transport, base_url="http://penstock") as client,
    ):
        answer = await client.post(f"/api/v1/run-queues/{queue}/tasks", json={"payload": 1})
        assert "Redis" in problem(answer, 503, "redis_unavailable")
        assert answer.headers["retry-after"] == "1"
        for path in (f"/api/v1/run-queues/{queue}", "/api/v1/run-queues", "/api/v1/tasks/a-0"):
            assert (await client.get(path)).status_code in (404, 503), path
        await push(client, 1, queue=queue)
        assert len(await pop(client, queue)) == 1


async def test_the_series_of_a_run_queue_are_known_before_they_have_a_point(
    client: httpx.AsyncClient, queue: str
) -> None:
    await enqueue(client, queue, 1)
    answer = await client.get(f"/api/v1/queues/{queue}/metrics")
    assert answer.status_code != 404, answer.text
