"""Ids of requests, in responses and in log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from uuid import UUID

import httpx
import pytest

from penstock.api.http.request_ids import read_request_ids, read_trace_context
from penstock.broker.queues.push import Pushes
from penstock.log_format import JsonLogFormatter
from tests.integration.api import shared_app
from tests.integration.api.http.raw_connections import RunningServer

server = shared_app.server

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACE_PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
PUSH = {"items": [{"queue": "ids", "payload": 1}]}


@pytest.fixture
def log() -> Iterator[StringIO]:
    output = StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonLogFormatter("broker"))
    logging.getLogger("penstock").addHandler(handler)
    yield output
    logging.getLogger("penstock").removeHandler(handler)


@pytest.fixture
def address(server: RunningServer) -> str:
    return f"http://localhost:{server.port}"


@pytest.mark.parametrize(
    ("value", "trace_id"),
    [
        (TRACE_PARENT, TRACE_ID),
        (f"01-{TRACE_ID}-b7ad6b7169203331-01-more", TRACE_ID),
        (f"ff-{TRACE_ID}-b7ad6b7169203331-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE_ID}-{'0' * 16}-01", None),
        ("nonsense", None),
    ],
)
def test_only_a_valid_traceparent_names_a_trace(value: str, trace_id: str | None) -> None:
    context = read_trace_context({b"traceparent": value.encode()})
    assert (context.trace_id if context else None) == trace_id


def test_an_id_that_could_forge_log_lines_is_replaced() -> None:
    assert read_request_ids({}) is None
    ids = read_request_ids({b"x-request-id": b'a"\n{'})
    assert ids is not None
    assert UUID(ids.request_id)


async def test_responses_carry_the_id_of_their_request(address: str) -> None:
    async with httpx.AsyncClient(base_url=address) as client:
        for _ in range(2):  # a repeated head is cached
            assert "x-request-id" not in (await client.post("/api/v1/push", json=PUSH)).headers
        for number in range(2):
            headers = {"X-Request-Id": f"r-{number}"}
            pushed = await client.post("/api/v1/push", json=PUSH, headers=headers)
            assert (pushed.status_code, pushed.headers["X-Request-Id"]) == (201, f"r-{number}")
            listed = await client.get("/api/v1/resources/queues", headers=headers)
            assert listed.headers["X-Request-Id"] == f"r-{number}"
        traced = await client.post("/api/v1/push", json=PUSH, headers={"traceparent": TRACE_PARENT})
        assert UUID(traced.headers["X-Request-Id"])
        first, second = [await client.get("/api/v1/resources/queues") for _ in range(2)]
        assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]


async def test_messages_of_a_traced_push_keep_its_trace_id(address: str) -> None:
    own = "019a86c2-3b5a-7c21-8f0e-5a8c3d2e1f10"
    items = [{"queue": "traced", "payload": 1}, {"queue": "traced", "payload": 2, "traceId": own}]
    async with httpx.AsyncClient(base_url=address) as client:
        await client.post("/api/v1/push", json={"items": items}, headers={"traceparent": TRACE_PARENT})
        await client.post("/api/v1/push", json={"items": items[:1]})
        messages = (await client.get("/api/v1/pop/queue/traced", params={"batch": 3})).json()["messages"]
    assert [message["traceId"] for message in messages] == [str(UUID(TRACE_ID)), own, None]
    assert [message.get("traceparent") for message in messages] == [TRACE_PARENT, TRACE_PARENT, None]
    assert [message["data"] for message in messages] == [1, 2, 1]


async def test_log_lines_of_a_failed_request_name_it_and_its_trace(
    address: str, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    headers = {"X-Request-Id": "r-7", "traceparent": TRACE_PARENT}
    for name in ("start", "push"):
        if hasattr(Pushes, name):
            monkeypatch.setattr(Pushes, name, fail)
    async with httpx.AsyncClient(base_url=address) as client:
        failed = await client.post("/api/v1/push", json=PUSH, headers=headers)
        assert (failed.status_code, failed.headers.get_list("X-Request-Id")) == (500, ["r-7"])
    [record] = [json.loads(line) for line in log.getvalue().splitlines() if "unexpected" in line]
    assert (record["requestId"], record["traceId"], record["component"]) == ("r-7", TRACE_ID, "broker")
    assert "ZeroDivisionError" in record["exception"]
