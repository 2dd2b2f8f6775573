"""The route that lists tasks of a run queue."""

from __future__ import annotations

from uuid import uuid4

import httpx

from tests.integration.api import shared_app
from tests.integration.api.calls import assert_problem, get, push

app = shared_app.app


async def test_tasks_that_run_wait_or_are_delayed_are_listed(client: httpx.AsyncClient) -> None:
    queue = uuid4().hex
    path = f"/api/v1/run-queues/{queue}"
    for task in (
        {"payload": 1},
        {"payload": 2},
        {"payload": 3, "priority": 9},
        {"payload": 4, "delayMs": 60_000},
    ):
        assert (await client.post(f"{path}/tasks", json=task)).status_code == 201
    assert (await client.post(f"{path}/dequeue", json={"worker": "w1"})).status_code == 200
    tasks = (await get(client, f"/run-queues/{queue}/tasks"))["tasks"]
    assert [(task["state"], task["payload"], task["worker"]) for task in tasks] == [
        ("running", 3, "w1"),
        ("eligible", 1, ""),
        ("eligible", 2, ""),
        ("delayed", 4, ""),
    ]
    limited = (await get(client, f"/run-queues/{queue}/tasks", limit=1))["tasks"]
    assert [task["payload"] for task in limited] == [3, 1, 4]


async def test_tasks_of_an_unknown_queue_are_refused(client: httpx.AsyncClient) -> None:
    durable = uuid4().hex
    await push(client, 1, queue=durable)
    for queue in (durable, uuid4().hex):
        assert_problem(await client.get(f"/api/v1/run-queues/{queue}/tasks"), 404, "unknown_queue")
    assert_problem(await client.get(f"/api/v1/run-queues/{durable}/tasks?limit=0"), 422, "invalid_request")
