"""Each limit of the broker has its own error, and what is within the limits goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from penstock.config import Settings
from tests.integration.api.http.raw_connections import RawConnection, RunningServer, get, post, run_server
from tests.waiting import wait_until_async

MAX_BODY_BYTES = 4 * 1024 * 1024


@pytest_asyncio.fixture(scope="module")
async def server(shared_settings: Settings) -> AsyncIterator[RunningServer]:
    limits = {"max_connections": 10, "max_waiting": 2, "max_body_bytes": MAX_BODY_BYTES}
    async with run_server(shared_settings.model_copy(update=limits)) as running_server:
        yield running_server


async def call(server: RunningServer, request: bytes) -> tuple[int, Any]:
    connection = await RawConnection.open(server)
    connection.send(request)
    status, _, body = await connection.read_response()
    connection.writer.close()
    await wait_for_connections(server, 0)
    return status, body


async def wait_for_connections(server: RunningServer, count: int) -> None:
    async def has_count() -> bool:
        return len(server.uvicorn.server_state.connections) == count

    await wait_until_async(has_count, 10, f"the server has {count} connections")


async def test_a_connection_above_the_maximum_is_refused_and_the_others_go_on(server: RunningServer) -> None:
    connections = [await RawConnection.open(server) for _ in range(10)]
    await wait_for_connections(server, 10)
    refused = await RawConnection.open(server)
    status, headers, problem = await refused.read_response()
    assert (status, problem["code"], headers["connection"]) == (503, "too_many_connections", "close")
    assert "PENSTOCK_MAX_CONNECTIONS" in problem["detail"]
    assert await refused.is_closed()
    refused.writer.close()
    for connection in connections:
        connection.send(get("/health/live"))
        assert (await connection.read_response())[0] == 200
        connection.writer.close()
    await wait_for_connections(server, 0)
    assert (await call(server, get("/health/live")))[0] == 200


@pytest.mark.parametrize(
    ("kind", "request_bytes"),
    [
        ("pops", get("/api/v1/pop/queue/waiting-pops?wait=true&timeout=30000")),
        ("dequeues", post("/api/v1/run-queues/waiting-tasks/dequeue", b'{"waitMs": 30000}')),
    ],
)
async def test_a_request_that_would_wait_above_the_maximum_is_refused(
    server: RunningServer, kind: str, request_bytes: bytes
) -> None:
    services = server.app.state.services

    async def are_parked() -> bool:
        wakeups = services.run_queues._wakeups
        parked = services.broker.parked_pops.count if kind == "pops" else wakeups.parked
        return bool(parked == 2)

    waiting = [await RawConnection.open(server) for _ in range(2)]
    for connection in waiting:
        connection.send(request_bytes)
    await wait_until_async(are_parked, 10, f"two {kind} wait")
    refused = await RawConnection.open(server)
    refused.send(request_bytes)
    status, headers, problem = await refused.read_response()
    assert (status, problem["code"]) == (429, "too_many_waiting")
    assert f"2 {kind} wait" in problem["detail"]
    assert headers["retry-after"]
    assert await are_parked(), "the others still wait"

    waiting[0].writer.close()
    await wait_for_connections(server, 2)
    refused.send(request_bytes)
    await wait_until_async(are_parked, 10, "a free place is taken again")
    for connection in (waiting[1], refused):
        connection.writer.close()
    await wait_for_connections(server, 0)


NESTED = b"[" * 5_000 + b"]" * 5_000
ACK = {"transactionId": "t", "partitionId": "1", "leaseId": "l"}


LONG_NAME = "q" * 256
TOO_LARGE, INVALID, MALFORMED = (413, "payload_too_large"), (422, "invalid_request"), (400, "malformed_body")


@pytest.mark.parametrize(
    ("path", "body", "error", "text"),
    [
        ("/push", b" " * (MAX_BODY_BYTES + 1), TOO_LARGE, f"larger than {MAX_BODY_BYTES} bytes"),
        ("/push", json.dumps({"items": [{"queue": "q"}] * 10_001}).encode(), INVALID, "10001"),
        ("/ack/batch", json.dumps({"acknowledgments": [ACK] * 10_001}).encode(), INVALID, "10001"),
        (
            "/transaction",
            json.dumps({"operations": [{"type": "ack", **ACK}] * 10_001}).encode(),
            INVALID,
            "10001",
        ),
        (
            "/run-queues/q/tasks",
            json.dumps({"tasks": [{"payload": 1}] * 10_001}).encode(),
            INVALID,
            "10000",
        ),
        ("/run-queues/q/tasks", b'{"payload": "' + b"x" * (1 << 20) + b'"}', INVALID, "1048576"),
        (
            "/push",
            json.dumps({"items": [{"queue": LONG_NAME}]}).encode(),
            INVALID,
            "1 to 255 printable",
        ),
        ("/configure", json.dumps({"queue": LONG_NAME}).encode(), INVALID, "1 to 255 printable"),
        (f"/run-queues/{LONG_NAME}/tasks", b'{"payload": 1}', INVALID, "1 to 255 printable"),
        ("/push", b'{"items": [{"queue": "q", "payload": ' + NESTED + b"}]}", MALFORMED, "nested too deeply"),
        ("/ack", b'{"transactionId": ' + NESTED + b"}", INVALID, "transactionId"),
        ("/ack/batch", NESTED, INVALID, ""),
    ],
    ids=[
        *("body", "push", "acks", "operations", "tasks", "payload", "name", "name of a configured queue"),
        *("name of a run queue", "JSON depth", "JSON depth of an ack", "JSON"),
    ],
)
async def test_a_request_beyond_a_limit_is_refused(
    server: RunningServer, path: str, body: bytes, error: tuple[int, str], text: str
) -> None:
    status, problem = await call(server, post(f"/api/v1{path}", body))
    assert (status, problem["code"]) == error, problem
    assert text in problem["detail"]
