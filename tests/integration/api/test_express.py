"""Hot requests over a real socket: the short way answers like the application, whatever a client sends."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.api.app import create_app
from penstock.api.http import fast_protocol
from penstock.api.http.fast_protocol import FastHttpProtocol, FastRequestCycle
from penstock.api.server import SERVER_OPTIONS
from penstock.broker.messages import NewMessage
from penstock.broker.overload.load import Decision
from penstock.config import Settings
from penstock.durable import log
from penstock.model import DEFAULT_SCOPE
from tests.waiting import wait_until_async


class Served:
    def __init__(self, app: FastAPI, server: uvicorn.Server, running: asyncio.Task[None]) -> None:
        self.app = app
        self.server = server
        self.running = running
        self.port: int = server.servers[0].sockets[0].getsockname()[1]

    @property
    def parked(self) -> int:
        waiters: Any = self.app.state.services.broker.parked_pops
        return int(waiters.count)


@asynccontextmanager
async def serving(settings: Settings, **options: Any) -> AsyncIterator[Served]:
    app = create_app(settings)
    config = uvicorn.Config(app, port=0, log_level="warning", **(SERVER_OPTIONS | options))
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server._serve())
    await wait_until_async(lambda: _is(server.started), 10, "the server listens")
    try:
        yield Served(app, server, running)
    finally:
        server.should_exit = True
        await running


async def _is(value: bool) -> bool:
    return value


@pytest_asyncio.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings) as up:
        yield up


@pytest.fixture
def express_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that went the short way."""
    seen: list[str] = []

    class Noted(FastRequestCycle):
        def __init__(self, protocol: FastHttpProtocol, handler: Any) -> None:
            seen.append(protocol.url.decode())
            super().__init__(protocol, handler)

    monkeypatch.setattr(fast_protocol, "FastRequestCycle", Noted)
    return seen


class Line:
    """A connection that sends bytes as they are and reads answers one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, served: Served) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", served.port))

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
            length = int(headers.get("content-length", "0"))
            body = await self.reader.readexactly(length)
        status = int(lines[0].split()[1])
        return status, headers, json.loads(body) if body.startswith((b"{", b"[")) else body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.read(1) == b""


def push_body(queue: str, *payloads: int, partition: str = "p") -> bytes:
    items = [{"queue": queue, "partition": partition, "payload": n} for n in payloads]
    return json.dumps({"items": items}).encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers]).encode() + b"\r\n\r\n"


async def test_push_pop_and_ack_go_the_short_way(served: Served, express_requests: list[str]) -> None:
    line = await Line.to(served)
    line.send(post("/api/v1/push", push_body("orders", 1)))
    assert (await line.answer())[0] == 201
    line.send(get("/api/v1/pop/queue/orders?batch=1"))
    status, _, popped = await line.answer()
    assert (status, popped["messages"][0]["data"]) == (200, 1)
    message = popped["messages"][0]
    ack = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
    line.send(post("/api/v1/ack", json.dumps(ack).encode()))
    status, _, acked = await line.answer()
    assert (status, acked[0]["success"]) == (200, True)
    line.send(get("/api/v1/pop/queue/orders?batch=1"))
    status, headers, body = await line.answer()
    assert (status, body) == (204, b"")
    assert "content-length" not in headers
    assert express_requests == [
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
async def test_both_ways_answer_alike(served: Served, request_bytes: bytes) -> None:
    short, long = await Line.to(served), await Line.to(served)
    short.send(request_bytes)
    # The same request, which the server is to answer and then close the connection: never the short way.
    long.send(request_bytes.replace(b"Host: x", b"Host: x\r\nConnection: close"))
    expected, answered = await long.answer(), await short.answer()
    assert answered[0] == expected[0]
    assert answered[2] == expected[2]
    assert answered[1].get("content-type") == expected[1].get("content-type")


async def test_counts_of_dead_letters_go_the_short_way(served: Served, express_requests: list[str]) -> None:
    line = await Line.to(served)
    for url in ("/dlq-status", "/dlq-status?limit=5&offset=2"):
        line.send(get(url))
        status, headers, short = await line.answer()
        assert (status, headers["content-type"]) == (200, "application/json")
        closing = await Line.to(served)
        closing.send(get(url, "Connection: close"))
        long = (await closing.answer())[2]
        assert short.pop("asOf") <= long.pop("asOf")
        assert short == long
    assert express_requests == ["/dlq-status", "/dlq-status?limit=5&offset=2"]


@pytest.mark.parametrize(
    "path", ["?limit=0", "?limit=x", "?limit=1001", "?offset=-1", "?offset=", "?limit=1&more=2", "es", "/x"]
)
async def test_an_unusual_question_for_counts_goes_the_long_way(
    served: Served, express_requests: list[str], path: str
) -> None:
    line, closing = await Line.to(served), await Line.to(served)
    line.send(get(f"/dlq-status{path}"))
    closing.send(get(f"/dlq-status{path}", "Connection: close"))
    expected, answered = await closing.answer(), await line.answer()
    assert answered[0] == expected[0]
    if expected[0] != 200:
        assert answered[2] == expected[2]
    assert express_requests == []


async def test_counts_on_the_short_way_are_for_who_has_a_token(
    settings: Settings, express_requests: list[str]
) -> None:
    async with serving(settings.model_copy(update={"dlq_tokens": "ops=s3cret"})) as served:
        line = await Line.to(served)
        right, wrong = "Authorization: Bearer s3cret", "authorization: Bearer other"
        # One request's token must not open the door for its neighbours, in whatever pieces they come.
        line.send(get("/dlq-status", right), get("/dlq-status"), get("/dlq-status", wrong))
        line.send(get("/dlq-status", right), get("/dlq-status", wrong, right))
        answers = [await line.answer() for _ in range(5)]
        assert [status for status, _, _ in answers] == [200, 401, 403, 200, 403]
        assert answers[1][1]["www-authenticate"] == "Bearer"
        line.send(get("/dlq-status", wrong))
        assert (await line.answer())[0] == 403
        express_requests.clear()
        line.send(get("/dlq-status", right))
        assert (await line.answer())[0] == 200
        assert express_requests == ["/dlq-status"]


async def test_requests_sent_ahead_are_answered_in_order(served: Served) -> None:
    line = await Line.to(served)
    line.send(
        post("/api/v1/push", push_body("ahead", 1, 2)),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
        get("/api/v1/resources/overview"),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
        get("/api/v1/pop/queue/ahead?autoAck=true"),
    )
    answers = [await line.answer() for _ in range(5)]
    assert [status for status, _, _ in answers] == [201, 200, 200, 200, 204]
    assert [answers[at][2]["messages"][0]["data"] for at in (1, 3)] == [1, 2]


async def test_a_request_may_arrive_byte_by_byte(served: Served, express_requests: list[str]) -> None:
    pieces = [bytes([byte]) for byte in post("/api/v1/push", push_body("slow", 7))]
    with socket.create_connection(("127.0.0.1", served.port)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.to_thread(lambda: [plain.send(piece) for piece in pieces])
        assert (await asyncio.to_thread(plain.recv, 100)).startswith(b"HTTP/1.1 201 ")
    assert express_requests == ["/api/v1/push"]


async def test_what_is_unusual_goes_the_long_way(served: Served, express_requests: list[str]) -> None:
    body = push_body("unusual", 1)
    line = await Line.to(served)
    line.send(
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
    )
    assert (await line.answer())[0] == 201
    line.send(post("/api/v1/push", body, "Expect: 100-continue"))
    assert (await line.answer())[0] == 100
    assert (await line.answer())[0] == 201
    line.send(post("/api/v1/push", body, "Connection: close"))
    status, headers, _ = await line.answer()
    assert (status, headers["connection"]) == (201, "close")
    assert await line.is_closed()
    old = await Line.to(served)
    old.send(get("/api/v1/pop/queue/unusual").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (await old.answer())[0] == 200
    assert await old.is_closed()
    assert express_requests == []


async def test_a_body_past_the_limit_is_refused(settings: Settings) -> None:
    async with serving(settings.model_copy(update={"max_body_bytes": 2_000})) as served:
        line = await Line.to(served)
        line.send(post("/api/v1/push", push_body("big", *range(1_000))))
        assert (await line.answer())[0] == 413


async def test_what_is_no_request_is_refused(served: Served) -> None:
    line = await Line.to(served)
    line.send(b"POST /api/v1/push HTTP/1.1\r\nContent-Length: many\r\n\r\n")
    assert (await line.answer())[0] == 400


async def test_an_unexpected_error_is_a_500_that_closes_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("broken on purpose")

    line = await Line.to(served)
    broker = served.app.state.services.broker
    monkeypatch.setattr(broker, "push", broken)
    line.send(post("/api/v1/push", push_body("q", 1)))
    status, _, body = await line.answer()
    assert (status, body["code"]) == (500, "internal")
    monkeypatch.undo()
    line.send(post("/api/v1/push", push_body("q", 1)))
    assert (await line.answer())[0] == 201


async def test_a_client_that_leaves_while_it_waits_holds_nothing(served: Served) -> None:
    line = await Line.to(served)
    line.send(get("/api/v1/pop/queue/left?wait=true&timeout=60000"))

    async def waits() -> bool:
        return served.parked == 1

    async def left() -> bool:
        return served.parked == 0

    await wait_until_async(waits, 10, "the pop is parked")
    line.writer.close()
    await wait_until_async(left, 10, "the pop is gone")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        pushed = await client.post("/api/v1/push", content=push_body("left", 5))
        assert pushed.status_code == 201
        popped = await client.get("/api/v1/pop/queue/left")
        assert popped.json()["messages"][0]["data"] == 5


def leaving_meanwhile(served: Served, there: Any) -> Any:
    """The same, after which all clients have left."""

    async def leave(*asked: Any, **more: Any) -> Any:
        found = await there(*asked, **more)
        for connection in list(served.server.server_state.connections):
            connection.transport.close()  # type: ignore[union-attr]
        return found

    return leave


async def test_what_was_leased_for_a_client_that_has_just_left_is_given_back(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await Line.to(served)
    line.send(post("/api/v1/push", push_body("gone", 9)))
    assert (await line.answer())[0] == 201
    broker = served.app.state.services.broker
    monkeypatch.setattr(broker, "pop", leaving_meanwhile(served, broker.pop))
    line.send(get("/api/v1/pop/queue/gone"))
    assert await line.is_closed()
    monkeypatch.undo()
    other = await Line.to(served)
    other.send(get("/api/v1/pop/queue/gone?wait=true&timeout=5000"))
    status, _, popped = await other.answer()
    assert (status, popped["messages"][0]["data"]) == (200, 9)


async def test_stopping_answers_a_pop_that_waits(settings: Settings) -> None:
    async with serving(settings) as served:
        line = await Line.to(served)
        line.send(get("/api/v1/pop/queue/idle?wait=true&timeout=60000"))

        async def waits() -> bool:
            return served.parked == 1

        await wait_until_async(waits, 10, "the pop is parked")
        served.server.should_exit = True
        status, headers, _ = await line.answer()
        assert (status, headers["connection"]) == (204, "close")
        assert await line.is_closed()
        await asyncio.wait_for(served.running, 10)


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(settings: Settings) -> None:
    async with serving(settings, timeout_keep_alive=1) as served:
        idle, waiting = await Line.to(served), await Line.to(served)
        waiting.send(get("/api/v1/pop/queue/idle?wait=true&timeout=60000"))
        idle.send(get("/api/v1/pop/queue/idle"))
        assert (await idle.answer())[0] == 204
        assert await idle.is_closed()
        other = await Line.to(served)
        other.send(post("/api/v1/push", push_body("idle", 3)))
        assert (await other.answer())[0] == 201
        status, _, popped = await waiting.answer()
        assert (status, popped["messages"][0]["data"]) == (200, 3)


async def known(line: Line, queue: str) -> None:
    """Have the broker know the queue and its consumer, so that requests go straight into their batches."""
    line.send(post("/api/v1/push", push_body(queue, 0)))
    assert (await line.answer())[0] == 201
    line.send(get(f"/api/v1/pop/queue/{queue}?autoAck=true"))
    assert (await line.answer())[0] == 200


async def test_what_is_known_is_answered_without_a_task(served: Served) -> None:
    line = await Line.to(served)
    await known(line, "straight")
    tasks: Any = served.server.server_state.tasks
    for number in (1, 2):
        line.send(post("/api/v1/push", push_body("straight", number)))
        assert ((await line.answer())[0], len(tasks)) == (201, 0)
    for path in ("/api/v1/ack", "/api/v1/ack/batch"):
        line.send(get("/api/v1/pop/queue/straight?wait=true"))
        [message] = (await line.answer())[2]["messages"]
        ack = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
        body = ack if path == "/api/v1/ack" else {"acknowledgments": [ack]}
        line.send(post(path, json.dumps(body).encode()))
        status, _, [acked] = await line.answer()
        assert (status, acked["success"], len(tasks)) == (200, True, 0)
        line.send(post(path, json.dumps(body).encode()))
        again, _, said = await line.answer()
        assert again == 409 if path == "/api/v1/ack" else not said[0]["success"]


async def test_a_queue_that_was_deleted_elsewhere_is_made_again(served: Served) -> None:
    line = await Line.to(served)
    await known(line, "again")
    services = served.app.state.services
    directory = services.broker.id_cache
    remembered = dict(directory._partitions), dict(directory._groups)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        assert (await client.delete("/api/v1/resources/queues/again")).status_code == 200
    directory._partitions, directory._groups = remembered  # as on a broker that has not heard of it
    line.send(get("/api/v1/pop/queue/again"))
    assert (await line.answer())[0] == 204
    directory._partitions, directory._groups = remembered
    line.send(post("/api/v1/push", push_body("again", 7)))
    status, _, [pushed] = await line.answer()
    assert (status, pushed["status"]) == (201, "queued")
    line.send(get("/api/v1/pop/queue/again"))
    assert (await line.answer())[2]["messages"][0]["data"] == 7


async def test_a_push_stays_behind_what_waits_in_its_lane(served: Served) -> None:
    line = await Line.to(served)
    await known(line, "lane")
    broker = served.app.state.services.broker
    await broker.drain.stop()
    [first] = await broker.push(DEFAULT_SCOPE, [NewMessage("lane", "p", b"1")], Decision.DEFER)
    assert first.deferral is not None
    line.send(post("/api/v1/push", push_body("lane", 2)))
    status, _, body = await line.answer()
    assert (status, body["reason"]) == (202, "maintaining_order")
    await broker.drain.start()
    got: list[int] = []
    while len(got) < 2:
        line.send(get("/api/v1/pop/queue/lane?batch=10&autoAck=true&wait=true&timeout=5000"))
        status, _, popped = await line.answer()
        assert status == 200, "it comes"
        got += [message["data"] for message in popped["messages"]]
    assert got == [1, 2]


async def test_an_error_in_a_batch_is_the_answer_and_the_connection_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await Line.to(served)
    await known(line, "broken")

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr("penstock.broker.queues.push.log.push", broken)
    monkeypatch.setattr("penstock.broker.queues.pop.log.pop", broken)
    monkeypatch.setattr("penstock.broker.queues.pop.log.pop_single", broken)
    pops = [get(f"/api/v1/pop/queue/broken?batch={batch}") for batch in (1, 2)]
    for request in (post("/api/v1/push", push_body("broken", 1)), *pops):
        line.send(request)
        status, _, body = await line.answer()
        assert (status, body["code"]) == (500, "internal")
    monkeypatch.undo()
    line.send(post("/api/v1/push", push_body("broken", 1)))
    assert (await line.answer())[0] == 201


@pytest.mark.parametrize(("batch", "call"), [(1, "pop_single"), (2, "pop")])
async def test_what_a_batch_leased_for_a_client_that_left_is_given_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, batch: int, call: str
) -> None:
    line = await Line.to(served)
    await known(line, "batch")
    line.send(post("/api/v1/push", push_body("batch", 9)))
    assert (await line.answer())[0] == 201
    monkeypatch.setattr(
        f"penstock.broker.queues.pop.log.{call}", leaving_meanwhile(served, getattr(log, call))
    )
    line.send(get(f"/api/v1/pop/queue/batch?batch={batch}"))
    assert await line.is_closed()
    monkeypatch.undo()
    other = await Line.to(served)
    other.send(get("/api/v1/pop/queue/batch?wait=true&timeout=5000"))
    status, _, popped = await other.answer()
    assert (status, popped["messages"][0]["data"]) == (200, 9)


async def test_a_head_that_was_read_before_is_not_parsed_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await Line.to(served)
    await known(line, "heads")
    parsed: list[bytes] = []
    parse = HttpToolsProtocol.data_received

    def noted(protocol: Any, data: bytes) -> None:
        parsed.append(data)
        parse(protocol, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", noted)
    for number in (1, 2, 3):
        line.send(post("/api/v1/push", push_body("heads", number)))
        assert (await line.answer())[0] == 201
    assert len(parsed) == 0
    whole = post("/api/v1/push", push_body("heads", 4))
    line.send(whole[:-1])
    await wait_until_async(lambda: _is(len(parsed) == 1), 10, "the first part was read")
    line.send(whole[-1:])
    assert (await line.answer())[0] == 201
    line.send(whole, whole)  # sent ahead: only the first of them may be answered at once
    assert [(await line.answer())[0] for _ in range(2)] == [201, 201]
    line.send(post("/api/v1/push", b"{" + push_body("heads", 4)[1:-1] + b"]"))
    assert (await line.answer())[0] == 400
    line.send(get("/api/v1/pop/queue/heads?batch=10"))
    assert [m["data"] for m in (await line.answer())[2]["messages"]] == [1, 2, 3, 4, 4, 4]


async def test_an_answered_request_leaves_nothing_for_the_garbage_collector(served: Served) -> None:
    line = await Line.to(served)
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            line.send(get("/api/v1/pop/queue/orders?batch=1"))
            assert (await line.answer())[0] == 204
        left = [one for one in gc.get_objects() if isinstance(one, FastRequestCycle)]
    finally:
        gc.enable()
    assert len(left) <= 2, "the last one, and the one that made the group"
