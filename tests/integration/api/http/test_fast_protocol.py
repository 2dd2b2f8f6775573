"""Hot requests over a real socket: the fast path and the application give the same responses."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import httpx
import pytest

from penstock.api.http.fast_protocol import FastHttpProtocol, FastRequestCycle
from penstock.api.http.strict_protocol import StrictHttpProtocol
from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import Decision
from penstock.caller import Caller
from penstock.config import Settings
from penstock.durable import log
from penstock.model import DEFAULT_SCOPE
from tests.deadlines import deadline_s
from tests.integration.api import shared_app
from tests.integration.api.calls import app_services
from tests.integration.api.http.raw_connections import (
    HOST,
    RawConnection,
    RunningServer,
    get,
    is_true,
    post,
    push_body,
    run_server,
)
from tests.waiting import wait_until_async

server = shared_app.server

P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture
def fast_path_urls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of requests that took the fast path."""
    urls: list[str] = []

    class RecordingCycle(FastRequestCycle):
        def __init__(self, protocol: FastHttpProtocol, handler: Any, caller: Caller) -> None:
            urls.append(protocol.url.decode())
            super().__init__(protocol, handler, caller)

    monkeypatch.setattr(FastHttpProtocol, "cycle_type", RecordingCycle)
    return urls


async def test_push_pop_and_ack_take_the_fast_path(server: RunningServer, fast_path_urls: list[str]) -> None:
    connection = await RawConnection.open(server)
    connection.send(post("/api/v1/push", push_body("orders", 1)))
    assert (await connection.read_response())[0] == 201
    connection.send(get("/api/v1/pop/queue/orders?batch=1"))
    status, _, popped = await connection.read_response()
    assert (status, popped["messages"][0]["data"]) == (200, 1)
    message = popped["messages"][0]
    ack = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
    connection.send(post("/api/v1/ack", json.dumps(ack).encode()))
    status, _, acked = await connection.read_response()
    assert (status, acked[0]["success"]) == (200, True)
    connection.send(get("/api/v1/pop/queue/orders?batch=1"))
    status, headers, body = await connection.read_response()
    assert (status, body) == (204, b"")
    assert "content-length" not in headers
    assert fast_path_urls == [
        "/api/v1/push",
        "/api/v1/pop/queue/orders?batch=1",
        "/api/v1/ack",
        "/api/v1/pop/queue/orders?batch=1",
    ]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post("/api/v1/push", b"{"),
        post("/api/v1/push", b'{"items": 1}'),
        post("/api/v1/push", b'{"items": []}'),
        post("/api/v1/push", push_body("a/b", 1)),
        post("/api/v1/push", b""),
        post("/api/v1/ack", b'{"transactionId": "t", "partitionId": "1"}'),
        post("/api/v1/ack", b'{"transactionId": "t", "partitionId": "1", "leaseId": "x"}'),
        post("/api/v1/ack/batch", b'{"acknowledgments": [{"transactionId": "t", "partitionId": "x"}]}'),
        get("/api/v1/pop/queue/nothing-here"),
        get("/api/v1/pop/queue/q?batch=0"),
        get("/api/v1/pop/queue/q?batch=1&batch=2"),
        get("/api/v1/pop/queue/q?wait=maybe"),
        get("/api/v1/pop/queue/"),
        get("/api/v1/pop/queue/a%2Fb"),
        get("/api/v1/pop/queue/q?consumerGroup=" + "g" * 300),
        get("/api/v1/pop/queue/q?subscriptionFrom=yesterday"),
    ],
)
async def test_fast_path_and_application_give_the_same_response(
    server: RunningServer, request_bytes: bytes
) -> None:
    short, long = await RawConnection.open(server), await RawConnection.open(server)
    short.send(request_bytes)
    # The same request with `Connection: close` never takes the fast path.
    long.send(request_bytes.replace(HOST.encode(), HOST.encode() + b"\r\nConnection: close"))
    expected, answered = await long.read_response(), await short.read_response()
    assert answered[0] == expected[0]
    assert answered[2] == expected[2]
    assert answered[1].get("content-type") == expected[1].get("content-type")


async def test_dead_letter_counts_take_the_fast_path(
    server: RunningServer, fast_path_urls: list[str]
) -> None:
    connection = await RawConnection.open(server)
    for url in ("/dlq-status", "/dlq-status?limit=5&offset=2"):
        connection.send(get(url))
        status, headers, short = await connection.read_response()
        assert (status, headers["content-type"]) == (200, "application/json")
        closing = await RawConnection.open(server)
        closing.send(get(url, "Connection: close"))
        long = (await closing.read_response())[2]
        assert short.pop("asOf") <= long.pop("asOf")
        assert short == long
    assert fast_path_urls == ["/dlq-status", "/dlq-status?limit=5&offset=2"]


@pytest.mark.parametrize(
    "path", ["?limit=0", "?limit=x", "?limit=1001", "?offset=-1", "?offset=", "?limit=1&more=2", "es", "/x"]
)
async def test_an_unusual_status_request_goes_to_the_application(
    server: RunningServer, fast_path_urls: list[str], path: str
) -> None:
    connection, closing = await RawConnection.open(server), await RawConnection.open(server)
    connection.send(get(f"/dlq-status{path}"))
    closing.send(get(f"/dlq-status{path}", "Connection: close"))
    expected, answered = await closing.read_response(), await connection.read_response()
    assert answered[0] == expected[0]
    if expected[0] != 200:
        assert answered[2] == expected[2]
    assert fast_path_urls == []


async def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(
        post("/api/v1/push", push_body("ahead", 1, 2)),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
        get("/api/v1/resources/overview"),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
    )
    responses = [await connection.read_response() for _ in range(5)]
    assert [status for status, _, _ in responses] == [201, 200, 200, 200, 204]
    assert [responses[at][2]["messages"][0]["data"] for at in (1, 3)] == [1, 2]


async def test_a_request_may_arrive_byte_by_byte(server: RunningServer, fast_path_urls: list[str]) -> None:
    pieces = [bytes([byte]) for byte in post("/api/v1/push", push_body("slow", 7))]
    with socket.create_connection(("127.0.0.1", server.port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.to_thread(lambda: [plain.send(piece) for piece in pieces])
        assert (await asyncio.to_thread(plain.recv, 100)).startswith(b"HTTP/1.1 201 ")
    assert fast_path_urls == ["/api/v1/push"]


async def test_unusual_requests_go_to_the_application(
    server: RunningServer, fast_path_urls: list[str]
) -> None:
    body = push_body("unusual", 1)
    connection = await RawConnection.open(server)
    connection.send(
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
    )
    assert (await connection.read_response())[0] == 201
    connection.send(post("/api/v1/push", body, "Expect: 100-continue"))
    assert (await connection.read_response())[0] == 100
    assert (await connection.read_response())[0] == 201
    connection.send(post("/api/v1/push", body, "Connection: close"))
    status, headers, _ = await connection.read_response()
    assert (status, headers["connection"]) == (201, "close")
    assert await connection.is_closed()
    old = await RawConnection.open(server)
    old.send(get("/api/v1/pop/queue/unusual").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (await old.read_response())[0] == 200
    assert await old.is_closed()
    assert fast_path_urls == []


async def test_a_body_beyond_the_limit_is_rejected_over_a_socket(settings: Settings) -> None:
    async with run_server(settings.model_copy(update={"max_body_bytes": 2_000})) as server:
        connection = await RawConnection.open(server)
        connection.send(post("/api/v1/push", push_body("big", *range(1_000))))
        assert (await connection.read_response())[0] == 413


async def test_malformed_http_is_rejected(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(b"POST /api/v1/push HTTP/1.1\r\nContent-Length: many\r\n\r\n")
    assert (await connection.read_response())[0] == 400


async def test_an_unexpected_error_is_a_500_and_keeps_the_connection(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("broken on purpose")

    connection = await RawConnection.open(server)
    broker = app_services(server.app).broker
    monkeypatch.setattr(broker.pushes, "resume", broken)
    connection.send(post("/api/v1/push", push_body("q", 1)))
    status, _, body = await connection.read_response()
    assert (status, body["code"]) == (500, "internal")
    monkeypatch.undo()
    connection.send(post("/api/v1/push", push_body("q", 1)))
    assert (await connection.read_response())[0] == 201


async def test_a_client_that_disconnects_while_it_waits_holds_no_lease(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(get("/api/v1/pop/queue/left?wait=true&timeout=60000"))

    async def is_parked() -> bool:
        return server.parked_pops == 1

    async def is_cancelled() -> bool:
        return server.parked_pops == 0

    await wait_until_async(is_parked, 10, "the pop is parked")
    connection.writer.close()
    await wait_until_async(is_cancelled, 10, "the pop is gone")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        pushed = await client.post(
            "/api/v1/push", content=push_body("left", 5), headers={"Content-Type": "application/json"}
        )
        assert pushed.status_code == 201
        popped = await client.get("/api/v1/pop/queue/left")
        assert popped.json()["messages"][0]["data"] == 5


def disconnect_clients_after(
    server: RunningServer, call: Callable[P, Awaitable[T]]
) -> Callable[P, Awaitable[T]]:
    """Wrap a call so that all clients are disconnected once it has returned."""

    async def call_and_disconnect(*args: P.args, **kwargs: P.kwargs) -> T:
        result = await call(*args, **kwargs)
        for connection in list(server.uvicorn.server_state.connections):
            connection.transport.close()
        return result

    return call_and_disconnect


async def test_the_lease_of_a_disconnected_client_is_released(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await RawConnection.open(server)
    connection.send(post("/api/v1/push", push_body("gone", 9)))
    assert (await connection.read_response())[0] == 201
    broker = app_services(server.app).broker
    monkeypatch.setattr(broker, "pop", disconnect_clients_after(server, broker.pop))
    connection.send(get("/api/v1/pop/queue/gone"))
    assert await connection.is_closed()
    monkeypatch.undo()
    other = await RawConnection.open(server)
    other.send(get("/api/v1/pop/queue/gone?wait=true&timeout=5000"))
    status, _, popped = await other.read_response()
    assert (status, popped["messages"][0]["data"]) == (200, 9)


async def test_shutdown_answers_a_waiting_pop(settings: Settings) -> None:
    async with run_server(settings) as server:
        connection = await RawConnection.open(server)
        connection.send(get("/api/v1/pop/queue/idle?wait=true&timeout=60000"))

        async def is_parked() -> bool:
            return server.parked_pops == 1

        await wait_until_async(is_parked, 10, "the pop is parked")
        server.uvicorn.should_exit = True
        status, headers, _ = await connection.read_response()
        assert (status, headers["connection"]) == (204, "close")
        assert await connection.is_closed()
        await asyncio.wait_for(server.running, deadline_s(10))


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(settings: Settings) -> None:
    async with run_server(settings, timeout_keep_alive=1) as server:
        idle, waiting = await RawConnection.open(server), await RawConnection.open(server)
        waiting.send(get("/api/v1/pop/queue/idle?wait=true&timeout=60000"))
        idle.send(get("/api/v1/pop/queue/idle"))
        assert (await idle.read_response())[0] == 204
        assert await idle.is_closed()
        other = await RawConnection.open(server)
        other.send(post("/api/v1/push", push_body("idle", 3)))
        assert (await other.read_response())[0] == 201
        status, _, popped = await waiting.read_response()
        assert (status, popped["messages"][0]["data"]) == (200, 3)


async def create_queue_and_group(connection: RawConnection, queue: str) -> None:
    """Make the broker cache the queue and its consumer group, so that requests go straight into batches."""
    connection.send(post("/api/v1/push", push_body(queue, 0)))
    assert (await connection.read_response())[0] == 201
    connection.send(get(f"/api/v1/pop/queue/{queue}?autoAck=true"))
    assert (await connection.read_response())[0] == 200


async def test_requests_to_a_cached_queue_create_no_task(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, "straight")
    tasks: Any = server.uvicorn.server_state.tasks
    for number in (1, 2):
        connection.send(post("/api/v1/push", push_body("straight", number)))
        assert ((await connection.read_response())[0], len(tasks)) == (201, 0)
    for path in ("/api/v1/ack", "/api/v1/ack/batch"):
        connection.send(get("/api/v1/pop/queue/straight?wait=true"))
        [message] = (await connection.read_response())[2]["messages"]
        ack = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
        body = ack if path == "/api/v1/ack" else {"acknowledgments": [ack]}
        connection.send(post(path, json.dumps(body).encode()))
        status, _, [acked] = await connection.read_response()
        assert (status, acked["success"], len(tasks)) == (200, True, 0)
        connection.send(post(path, json.dumps(body).encode()))
        again, _, said = await connection.read_response()
        assert again == 409 if path == "/api/v1/ack" else not said[0]["success"]


async def test_a_queue_deleted_by_another_broker_is_created_again(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, "again")
    services = app_services(server.app)
    id_cache = services.broker.id_cache
    cached = dict(id_cache._partitions), dict(id_cache._groups)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        assert (await client.delete("/api/v1/resources/queues/again")).status_code == 200
    id_cache._partitions, id_cache._groups = cached  # as on a broker that missed the notification
    connection.send(get("/api/v1/pop/queue/again"))
    assert (await connection.read_response())[0] == 204
    id_cache._partitions, id_cache._groups = cached
    connection.send(post("/api/v1/push", push_body("again", 7)))
    status, _, [pushed] = await connection.read_response()
    assert (status, pushed["status"]) == (201, "queued")
    connection.send(get("/api/v1/pop/queue/again"))
    assert (await connection.read_response())[2]["messages"][0]["data"] == 7


async def test_a_push_waits_behind_deferred_pushes_of_its_lane(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, "lane")
    broker = app_services(server.app).broker
    await broker.drain.stop()
    [first] = await broker.push(DEFAULT_SCOPE, [NewMessage("lane", "p", b"1")], Decision.DEFER)
    assert first.deferral is not None
    connection.send(post("/api/v1/push", push_body("lane", 2)))
    status, headers, [result] = await connection.read_response()
    assert (status, result["reason"]) == (202, "maintaining_order")
    assert headers["penstock-operation-id"] == result["operationId"]
    assert headers["penstock-queue-position"] == str(result["queuePosition"]) == "2"
    await broker.drain.start()
    got: list[int] = []
    while len(got) < 2:
        connection.send(get("/api/v1/pop/queue/lane?batch=10&autoAck=true&wait=true&timeout=5000"))
        status, _, popped = await connection.read_response()
        assert status == 200, "the messages arrive"
        got += [message["data"] for message in popped["messages"]]
    assert got == [1, 2]


async def test_an_error_in_a_batch_is_a_500_and_keeps_the_connection(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, "broken")

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("penstock.broker.queues.push.log.push", broken)
    monkeypatch.setattr("penstock.broker.queues.pop.log.pop", broken)
    monkeypatch.setattr("penstock.broker.queues.pop.log.pop_single", broken)
    pops = [get(f"/api/v1/pop/queue/broken?batch={batch}") for batch in (1, 2)]
    for request in (post("/api/v1/push", push_body("broken", 1)), *pops):
        connection.send(request)
        status, _, body = await connection.read_response()
        assert (status, body["code"]) == (500, "internal")
    monkeypatch.undo()
    connection.send(post("/api/v1/push", push_body("broken", 1)))
    assert (await connection.read_response())[0] == 201


@pytest.mark.parametrize(("batch", "call"), [(1, "pop_single"), (2, "pop")])
async def test_a_batch_releases_the_lease_of_a_disconnected_client(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, batch: int, call: str
) -> None:
    queue = f"batch-{batch}"
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, queue)
    connection.send(post("/api/v1/push", push_body(queue, 9)))
    assert (await connection.read_response())[0] == 201
    monkeypatch.setattr(
        f"penstock.broker.queues.pop.log.{call}", disconnect_clients_after(server, getattr(log, call))
    )
    connection.send(get(f"/api/v1/pop/queue/{queue}?batch={batch}"))
    assert await connection.is_closed()
    monkeypatch.undo()
    other = await RawConnection.open(server)
    other.send(get(f"/api/v1/pop/queue/{queue}?wait=true&timeout=5000"))
    status, _, popped = await other.read_response()
    assert (status, popped["messages"][0]["data"]) == (200, 9)


async def test_a_cached_head_is_not_parsed_again(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await RawConnection.open(server)
    await create_queue_and_group(connection, "heads")
    parsed: list[bytes] = []
    parse = StrictHttpProtocol.data_received

    def noted(protocol: Any, data: bytes) -> None:
        parsed.append(data)
        parse(protocol, data)

    monkeypatch.setattr(StrictHttpProtocol, "data_received", noted)
    for number in (1, 2, 3):
        connection.send(post("/api/v1/push", push_body("heads", number)))
        assert (await connection.read_response())[0] == 201
    assert len(parsed) == 0
    whole = post("/api/v1/push", push_body("heads", 4))
    connection.send(whole[:-1])
    await wait_until_async(lambda: is_true(len(parsed) == 1), 10, "the first bytes were read")
    connection.send(whole[-1:])
    assert (await connection.read_response())[0] == 201
    connection.send(whole, whole)  # pipelined: only the first may be handled at once
    assert [(await connection.read_response())[0] for _ in range(2)] == [201, 201]
    connection.send(post("/api/v1/push", b"{" + push_body("heads", 4)[1:-1] + b"]"))
    assert (await connection.read_response())[0] == 400
    connection.send(get("/api/v1/pop/queue/heads?batch=10"))
    assert [m["data"] for m in (await connection.read_response())[2]["messages"]] == [1, 2, 3, 4, 4, 4]


def list_request_cycles() -> list[FastRequestCycle]:
    return [item for item in gc.get_objects() if isinstance(item, FastRequestCycle)]


async def test_a_finished_request_leaves_nothing_for_the_garbage_collector(settings: Settings) -> None:
    async with run_server(settings) as server:
        connection = await RawConnection.open(server)
        gc.collect()
        earlier = list_request_cycles()  # the connections of other tests hold their last requests
        earlier_ids = {id(cycle) for cycle in earlier}
        gc.disable()
        try:
            for _ in range(20):
                connection.send(get("/api/v1/pop/queue/orders?batch=1"))
                assert (await connection.read_response())[0] == 204
            cycles = [cycle for cycle in list_request_cycles() if id(cycle) not in earlier_ids]
        finally:
            gc.enable()
    assert len(cycles) <= 2, "the last one, and the one that created the group"
