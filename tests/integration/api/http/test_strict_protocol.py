"""Requests that are too large, too slow or ambiguous, unread responses, and upgrades, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.api.http.fast_protocol import FastHttpProtocol
from penstock.api.http.request_limits import RequestLimits
from penstock.api.http.strict_protocol import StrictHttpProtocol
from penstock.config import Settings
from tests.integration.api import shared_app
from tests.integration.api.http.raw_connections import (
    HOST,
    JSON,
    RawConnection,
    RunningServer,
    get,
    post,
    push_body,
    run_server,
)
from tests.waiting import wait_until_async

server = shared_app.server

LIMITS = RequestLimits()
MAX_CHUNK_BYTES = 256 * 1024
"""What the event loop reads at once."""
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")


CHUNKED_PUSH = (
    f"POST /api/v1/push HTTP/1.1\r\n{HOST}\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
)


async def assert_refused(connection: RawConnection, status: int, code: str) -> str:
    """Assert that the next response is this problem and ends the connection; return its detail."""
    answered, headers, problem = await connection.read_response()
    assert (answered, problem["code"]) == (status, code), problem
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert await connection.is_closed()
    detail: str = problem["detail"]
    return detail


async def assert_usable(connection: RawConnection) -> None:
    connection.send(get("/api/v1/resources/namespaces"))
    assert (await connection.read_response())[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * LIMITS.head_bytes,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * (LIMITS.headers + 1) + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * LIMITS.head_bytes + b"\r\n\r\n",
        b"GET /" + b"x" * (LIMITS.head_bytes + 1),
        get("/health/live") + b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
    ],
    ids=["without end", "many headers", "long header", "long URL", "second request"],
)
async def test_a_head_that_is_too_large_is_refused(server: RunningServer, head: bytes) -> None:
    connection = await RawConnection.open(server)
    connection.send(head)
    if head.startswith(get("/health/live")):
        status, headers, _ = await connection.read_response()
        assert (status, headers["connection"]) == (200, "close"), "the response to the first request"
        assert await connection.is_closed()
    else:
        assert "65536 bytes" in await assert_refused(connection, 431, "head_too_large")


async def test_a_head_within_the_limits_is_accepted(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    headers = [f"X{number}: {'x' * 480}" for number in range(LIMITS.headers - 1)]
    connection.send(get("/api/v1/resources/namespaces", *headers))
    assert (await connection.read_response())[0] == 200
    await assert_usable(connection)


async def test_an_endless_head_is_not_read(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_bytes = 0
    parse = StrictHttpProtocol._parse

    def count_and_parse(protocol: StrictHttpProtocol, data: bytes) -> None:
        nonlocal parsed_bytes
        parsed_bytes += len(data)
        parse(protocol, data)

    monkeypatch.setattr(StrictHttpProtocol, "_parse", count_and_parse)
    connection = await RawConnection.open(server)
    connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    with contextlib.suppress(ConnectionError):  # the server closes the connection
        for _ in range(130):
            connection.send(b"x" * (1 << 20))
            await connection.writer.drain()
    assert 0 < parsed_bytes < LIMITS.head_bytes + MAX_CHUNK_BYTES
    await assert_usable(await RawConnection.open(server))


async def wait_for_unfinished_request(server: RunningServer, connection: RawConnection) -> None:
    """Wait until the server has received the start of a request, so that the rest arrives by itself."""
    client = connection.writer.get_extra_info("sockname")

    async def has_unfinished_request() -> bool:
        protocols = server.uvicorn.server_state.connections
        return any(
            isinstance(p, StrictHttpProtocol) and p._in_message and p.client == client for p in protocols
        )

    await wait_until_async(has_unfinished_request, 10, "the server has the start of a request")


@pytest.mark.parametrize("end", [b"0\r\nX: ", b"0;x="], ids=["trailer", "chunk extension"])
async def test_endless_trailers_and_extensions_are_refused(server: RunningServer, end: bytes) -> None:
    connection = await RawConnection.open(server)
    connection.send(CHUNKED_PUSH, b"2\r\n{}\r\n", end)
    await wait_for_unfinished_request(server, connection)
    for _ in range(4):
        connection.send(b"x" * (LIMITS.head_bytes // 3))
        await connection.writer.drain()
    await assert_refused(connection, 431, "head_too_large")


async def test_trailers_are_not_headers(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    body = push_body("trailers", 1)
    trailers = b"0\r\nContent-Type: text/plain\r\nHost: evil.example\r\n\r\n"
    connection.send(CHUNKED_PUSH, b"%x\r\n%s\r\n" % (len(body), body), trailers)
    assert (await connection.read_response())[0] == 201
    await assert_usable(connection)


class ImpatientProtocol(FastHttpProtocol):
    limits = RequestLimits(head_s=0.3, body_window_s=0.3, body_window_bytes=100, response_stall_s=0.5)


@pytest_asyncio.fixture(scope="module")
async def impatient_server(shared_settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(shared_settings, http=ImpatientProtocol) as running_server:
        yield running_server


async def send_slowly(connection: RawConnection, data: bytes) -> None:
    """Send byte after byte until the server closes the connection."""
    for position in range(len(data)):
        connection.send(data[position : position + 1])
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health",
        post("/api/v1/push", b"x" * 1_000)[:-1_000],
        post("/api/v1/configure", b"x" * 1_000)[:-1_000],
        post("/api/v1/configure", b"x" * 1_000)[:-999],
        CHUNKED_PUSH,
    ],
    ids=["head", "hot body", "body", "body begun", "chunked body"],
)
@pytest.mark.parametrize("trickles", [False, True])
async def test_a_slow_request_is_refused(
    impatient_server: RunningServer, start: bytes, trickles: bool
) -> None:
    connection = await RawConnection.open(impatient_server)
    connection.send(start)
    trickle = asyncio.create_task(send_slowly(connection, b"1" * 1_000 if trickles else b""))
    await assert_refused(connection, 408, "request_timeout")
    trickle.cancel()


async def test_a_body_above_the_floor_is_not_refused(impatient_server: RunningServer) -> None:
    connection = await RawConnection.open(impatient_server)
    body = push_body("steady", *range(40))
    request = post("/api/v1/push", body)
    for start in range(0, len(request), 150):
        connection.send(request[start : start + 150])
        await asyncio.sleep(0.1)
    assert (await connection.read_response())[0] == 201


async def test_half_sent_heads_do_not_stay_open(impatient_server: RunningServer) -> None:
    connections = [await RawConnection.open(impatient_server) for _ in range(50)]
    for connection in connections:
        connection.send(b"GET / HTTP/1.1\r\nHost: loc")
    for connection in connections:
        await assert_refused(connection, 408, "request_timeout")


async def test_a_slow_second_request_waits_for_the_first_response(impatient_server: RunningServer) -> None:
    connection = await RawConnection.open(impatient_server)
    connection.send(get("/api/v1/pop/queue/idle?wait=true&timeout=1000"), b"GET /hea")
    status, headers, _ = await connection.read_response()
    assert (status, headers["connection"]) == (204, "close")
    assert await connection.is_closed()


LARGE_PAYLOAD = b"x" * 12_000_000
"""More than the buffers of both sockets hold."""


async def begin_large_response(server: RunningServer, queue: str) -> socket.socket:
    """Push a large message and send a pop of it. Nothing of the response is read yet."""
    pusher = await RawConnection.open(server)
    item = b'{"queue": "%s", "payload": "%s"}' % (queue.encode(), LARGE_PAYLOAD)
    pusher.send(post("/api/v1/push", b'{"items": [%s]}' % item))
    assert (await pusher.read_response())[0] == 201
    pusher.writer.close()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(client, get(f"/api/v1/pop/queue/{queue}"))
    return client


async def test_a_response_that_is_not_read_ends_with_its_connection(
    impatient_server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.api.http.strict_protocol")
    with await begin_large_response(impatient_server, "unread") as client:
        name = client.getsockname()

        async def is_closed() -> bool:
            protocols = impatient_server.uvicorn.server_state.connections
            clients = [p.client for p in protocols if isinstance(p, StrictHttpProtocol)]
            return "read nothing for 0.5 s" in caplog.text and name not in clients

        await wait_until_async(is_closed, 20, "the server closes the connection")
    await assert_usable(await RawConnection.open(impatient_server))


async def test_a_response_that_is_read_slowly_arrives_whole(impatient_server: RunningServer) -> None:
    loop = asyncio.get_running_loop()
    with await begin_large_response(impatient_server, "slowly-read") as client:
        received = bytearray()
        while not received.endswith(b"}"):
            data = await loop.sock_recv(client, 256 * 1024)
            assert data, f"the server closed the connection after {len(received)} bytes"
            received += data
            await asyncio.sleep(0.01)
    assert LARGE_PAYLOAD in received


async def test_a_connection_without_a_request_is_closed(settings: Settings) -> None:
    async with run_server(settings, timeout_keep_alive=1) as server:
        assert await (await RawConnection.open(server)).is_closed()


async def test_a_large_body_in_small_pieces_arrives_whole(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    body = b'{"items": [{"queue": "large", "payload": "' + b"x" * 16_000_000 + b'"}]}'
    request = post("/api/v1/push", body)
    for start in range(0, len(request), 4_096):
        connection.send(request[start : start + 4_096])
        if start % (4_096 * 64) == 0:
            await connection.writer.drain()
    status, _, [pushed] = await connection.read_response()
    assert (status, pushed["status"]) == (201, "queued")


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", "no Host"),
        (b"GET /health HTTP/1.1\r\nHost:\r\n\r\n", "no Host"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "2 headers host"),
        (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", "HTTP/2.0"),
        (post("/api/v1/push", b"{}", "Transfer-Encoding: chunked"), ""),
        (post("/api/v1/push", b"{}", "Content-Length: 2"), ""),
        (post("/api/v1/push", b"{}", "Content-Length: 3"), ""),
        (CHUNKED_PUSH.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", "chunked"),
        (
            b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "2 headers transfer-encoding",
        ),
        (b"POST /api/v1/push HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked"),
        (get("/api/v1/pop/queue/%ff"), "not UTF-8"),
        (get("/api/v1/pop/queue/q?consumerGroup=%C3"), "not UTF-8"),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", "CONNECT"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not valid HTTP"),
        (CHUNKED_PUSH + b"zz\r\n", "not valid HTTP"),
    ],
)
async def test_a_malformed_request_is_refused(
    server: RunningServer, request_bytes: bytes, reason: str
) -> None:
    connection = await RawConnection.open(server)
    connection.send(request_bytes)
    assert reason in await assert_refused(connection, 400, "malformed_request")


async def test_http_1_0_needs_no_host(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(b"GET /api/v1/resources/namespaces HTTP/1.0\r\n\r\n")
    assert (await connection.read_response())[0] == 200


async def test_garbage_after_a_request_does_not_replace_its_response(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(post("/api/v1/push", push_body("first", 1)), b"garbage\r\n\r\n")
    status, headers, _ = await connection.read_response()
    assert (status, headers["connection"]) == (201, "close")
    assert await connection.is_closed()


async def test_an_upgrade_to_http_2_is_ignored(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    request = post("/api/v1/push", push_body("h2c", 1), *H2C)
    for _ in range(2):
        connection.send(request)
        assert (await connection.read_response())[0] == 201
    connection.send(request[:-20])
    await wait_for_unfinished_request(server, connection)
    connection.send(request[-20:], get("/api/v1/resources/namespaces", *H2C), request)
    assert [(await connection.read_response())[0] for _ in range(3)] == [201, 200, 201]
    connection.send(get("/api/v1/pop/queue/h2c?batch=10", *H2C))
    messages = (await connection.read_response())[2]["messages"]
    assert [message["data"] for message in messages] == [1, 1, 1, 1]


async def test_an_upgrade_with_a_chunked_body_keeps_the_body(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    head = "\r\n".join(["POST /api/v1/push HTTP/1.1", HOST, JSON, "Transfer-Encoding: chunked", *H2C])
    body = push_body("h2c-chunked", 1)
    connection.send(head.encode(), b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert (await connection.read_response())[0] == 201


async def test_a_seek_with_an_upgrade_goes_to_its_time(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(
        post("/api/v1/push", push_body("seek", 1)), get("/api/v1/pop/queue/seek?consumerGroup=g&autoAck=true")
    )
    assert [(await connection.read_response())[0] for _ in range(2)] == [201, 200]
    path = "/api/v1/consumer-groups/g/queues/seek/seek"
    connection.send(post(path, b'{"timestamp": "2020-01-01T00:00:00Z"}', *H2C))
    assert (await connection.read_response())[0] == 200
    connection.send(get("/api/v1/pop/queue/seek?consumerGroup=g"))
    assert (await connection.read_response())[0] == 200, "the message is read again"


async def test_a_response_before_100_continue_ends_the_connection(server: RunningServer) -> None:
    connection = await RawConnection.open(server)
    connection.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n")
    connection.send(JSON.encode(), b"\r\nContent-Length: 999999999\r\n\r\n")
    status, headers, _ = await connection.read_response()
    assert (status, headers["connection"]) == (413, "close")
    assert await connection.is_closed()


async def test_a_connection_is_usable_after_a_body_that_was_too_large(settings: Settings) -> None:
    async with run_server(settings.model_copy(update={"max_body_bytes": 1_024})) as server:
        connection = await RawConnection.open(server)
        connection.send(post("/api/v1/push", b"x" * 100_000))
        assert (await connection.read_response())[0] == 413
        await assert_usable(connection)


async def list_queues_and_groups(server: RunningServer) -> tuple[list[str], list[tuple[str, str]]]:
    connection = await RawConnection.open(server)
    connection.send(get("/api/v1/resources/queues"), get("/api/v1/consumer-groups"))
    queues, groups = (await connection.read_response())[2], (await connection.read_response())[2]
    return [queue["name"] for queue in queues["queues"]], [
        (group["queueName"], group["name"]) for group in groups
    ]


async def test_a_pop_of_an_invalid_name_creates_nothing(server: RunningServer) -> None:
    long_name = "x" * 256
    names_before = await list_queues_and_groups(server)
    for path in (
        *("/queue/%00", "/queue/a%0Ab", "/queue/a%2Fb", "/queue/%7F", "/queue/%ff", "/queue/%ED%A0%80"),
        *(f"/queue/{long_name}", f"/queue/q?consumerGroup={long_name}", "/queue/q?consumerGroup=a%2Fb"),
        *("/queue/q?consumerGroup=%00", "/queue/q?consumerGroup=%ff", f"/queue/q/partition/{long_name}"),
        *("/queue/q/partition/%00", "/queue/", "?namespace="),
    ):
        connection = await RawConnection.open(server)
        connection.send(get(f"/api/v1/pop{path}"))
        assert (await connection.read_response())[0] in (400, 404, 422), path
    assert await list_queues_and_groups(server) == names_before
