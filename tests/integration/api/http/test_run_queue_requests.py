"""Requests of run queues over a real socket: they need no task of their own, even while they wait."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.api.http.fast_protocol import FastRequestCycle
from penstock.api.http.fast_routes import post_route
from penstock.api.routes.run_queue_tasks import DequeueHandler
from penstock.config import Settings
from penstock.runqueue.queue import RunQueues
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services
from tests.integration.api.http.raw_connections import RawConnection, RunningServer, post, run_server
from tests.waiting import wait_until_async


@pytest.fixture
def queue() -> str:
    """The URL of a new run queue."""
    return f"/api/v1/run-queues/mail-{uuid4().hex[:8]}"


@pytest_asyncio.fixture
async def server(settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(settings) as running_server:
        yield running_server


@pytest_asyncio.fixture
async def connection(server: RunningServer, queue: str) -> RawConnection:
    """A connection to a broker that has looked up the queue."""
    opened = await RawConnection.open(server)
    assert (await call(opened, f"{queue}/tasks", payload="first"))[0] == 201
    [task] = (await call(opened, f"{queue}/dequeue"))[1]["tasks"]
    assert (await call(opened, f"/api/v1/tasks/{task['id']}/ack", token=task["token"]))[0] == 200
    return opened


@pytest.fixture
def started_tasks(monkeypatch: pytest.MonkeyPatch) -> list[FastRequestCycle]:
    """The requests that started a task."""
    cycles: list[FastRequestCycle] = []
    create_task = FastRequestCycle._create_task

    def note(cycle: FastRequestCycle, work: Any) -> asyncio.Task[None]:
        cycles.append(cycle)
        return create_task(cycle, work)

    monkeypatch.setattr(FastRequestCycle, "_create_task", note)
    return cycles


async def call(connection: RawConnection, path: str, **body: Any) -> tuple[int, Any]:
    send(connection, path, **body)
    status, _, answer = await connection.read_response()
    return status, answer


def send(connection: RawConnection, path: str, **body: Any) -> None:
    connection.send(post(path, json.dumps(body).encode() if body else b""))


def run_queues(server: RunningServer) -> RunQueues:
    return app_services(server.app).run_queues


async def wait_for_waiting_dequeues(server: RunningServer, count: int) -> None:
    async def is_reached() -> bool:
        return run_queues(server).waiting_dequeues == count

    await wait_until_async(is_reached, 10, f"{count} dequeues wait")


@pytest.mark.parametrize("verb", ["ack", "nack", "heartbeat", "give-back"])
async def test_enqueue_dequeue_and_reports_start_no_task(
    connection: RawConnection, queue: str, started_tasks: list[FastRequestCycle], verb: str
) -> None:
    assert (await call(connection, f"{queue}/tasks", payload=1))[0] == 201
    [task] = (await call(connection, f"{queue}/dequeue"))[1]["tasks"]
    status, change = await call(connection, f"/api/v1/tasks/{task['id']}/{verb}", token=task["token"])
    assert (status, change["id"]) == (200, task["id"])
    lease = {"id": task["id"], "token": task["token"] + 1}
    status, answer = await call(connection, f"/api/v1/tasks/{verb}", tasks=[lease])
    assert (status, answer["results"][0]["success"]) == (200, False)
    status, problem = await call(connection, f"/api/v1/tasks/no-task-id/{verb}", token=1)
    assert (status, problem["code"]) == (404, "unknown_task")
    assert started_tasks == []


async def test_a_dequeue_waits_without_a_task(
    server: RunningServer, connection: RawConnection, queue: str, started_tasks: list[FastRequestCycle]
) -> None:
    waiting = await RawConnection.open(server)
    send(waiting, f"{queue}/dequeue", waitMs=60_000)
    await wait_for_waiting_dequeues(server, 1)
    assert (await call(connection, f"{queue}/tasks", payload=2))[0] == 201
    status, _, answer = await waiting.read_response()
    assert (status, [task["payload"] for task in answer["tasks"]]) == (200, [2])
    await wait_for_waiting_dequeues(server, 0)
    assert await call(waiting, f"{queue}/dequeue", waitMs=20) == (200, {"tasks": []})
    assert started_tasks == []


async def test_a_dequeue_whose_client_disconnects_stops_waiting(
    server: RunningServer, connection: RawConnection, queue: str
) -> None:
    leaving = await RawConnection.open(server)
    send(leaving, f"{queue}/dequeue", waitMs=60_000)
    await wait_for_waiting_dequeues(server, 1)
    leaving.writer.close()
    await wait_for_waiting_dequeues(server, 0)
    assert (await call(connection, f"{queue}/tasks", payload=3))[0] == 201
    [task] = (await call(connection, f"{queue}/dequeue"))[1]["tasks"]
    assert (task["payload"], task["attempt"]) == (3, 1)


async def test_a_batch_releases_the_tasks_of_a_disconnected_client(
    server: RunningServer, connection: RawConnection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await call(connection, f"{queue}/tasks", payload=4))[0] == 201
    scripts = run_queues(server)._scripts
    execute = scripts.call

    async def execute_and_disconnect(command: str, shard: int, *arguments: Any) -> Any:
        reply = await execute(command, shard, *arguments)
        if command == "dequeue":
            for open_connection in list(server.uvicorn.server_state.connections):
                open_connection.transport.close()
        return reply

    monkeypatch.setattr(scripts, "call", execute_and_disconnect)
    send(connection, f"{queue}/dequeue", waitMs=60_000)
    assert await connection.is_closed()
    monkeypatch.undo()
    await wait_for_waiting_dequeues(server, 0)
    other = await RawConnection.open(server)
    [task] = (await call(other, f"{queue}/dequeue", waitMs=5_000))[1]["tasks"]
    assert (task["payload"], task["attempt"]) == (4, 1)


def test_a_dequeue_of_any_queue_has_the_same_handler() -> None:
    for url, queue in ((b"/api/v1/run-queues/dequeue", None), (b"/api/v1/run-queues/mail/dequeue", "mail")):
        route = post_route(url)
        assert route is not None
        assert route.handler == DequeueHandler(queue)


async def test_shutdown_answers_a_waiting_dequeue(settings: Settings, queue: str) -> None:
    async with run_server(settings) as server:
        connection = await RawConnection.open(server)
        send(connection, f"{queue}/dequeue", waitMs=60_000)
        await wait_for_waiting_dequeues(server, 1)
        server.uvicorn.should_exit = True
        status, headers, answer = await connection.read_response()
        assert (status, headers["connection"], answer) == (200, "close", {"tasks": []})
        await asyncio.wait_for(server.running, deadline_s(10))


async def test_the_heads_of_enqueues_and_dequeues_are_cached(
    connection: RawConnection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await call(connection, f"{queue}/tasks", payload=5))[0] == 201
    parsed: list[bytes] = []
    parse = HttpToolsProtocol.data_received

    def note(protocol: Any, data: bytes) -> None:
        parsed.append(data)
        parse(protocol, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", note)
    assert (await call(connection, f"{queue}/tasks", payload=6))[0] == 201
    for payload in (5, 6):
        [task] = (await call(connection, f"{queue}/dequeue"))[1]["tasks"]
        assert task["payload"] == payload
    assert parsed == []


async def test_finished_dequeues_leave_nothing_for_the_garbage_collector(
    connection: RawConnection, queue: str
) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            assert await call(connection, f"{queue}/dequeue", waitMs=1) == (200, {"tasks": []})
        cycles = [item for item in gc.get_objects() if isinstance(item, FastRequestCycle)]
    finally:
        gc.enable()
    assert len(cycles) <= 1, "the last one"
