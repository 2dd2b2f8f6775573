"""What the client makes of answers, and what it asks for."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.client import (
    AnyQueue,
    ApiError,
    Client,
    ClientSettings,
    InvalidRequest,
    LeaseLost,
    NotFound,
    Overloaded,
    ServerFault,
    SyncClient,
    Unavailable,
    WrongState,
)
from penstock.client.errors import api_error, error_text
from penstock.client.pop_request import PopRequest

GUIDE = Path(__file__).parents[3] / "docs" / "client.md"


def problem(status: int, code: str, **fields: Any) -> bytes:
    told = {"type": f"urn:penstock:error:{code}", "title": "T", "status": status, "code": code}
    return json.dumps({**told, "detail": "D", "error": "D", **fields}).encode()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "malformed_body", InvalidRequest),
        (404, "unknown_queue", NotFound),
        (409, "lease_lost", LeaseLost),
        (409, "wrong_state", WrongState),
        (413, "payload_too_large", InvalidRequest),
        (422, "invalid_request", InvalidRequest),
        (429, "queue_full", Overloaded),
        (500, "internal", ServerFault),
        (501, "not_available", ServerFault),
        (503, "database_unavailable", Unavailable),
    ],
)
def test_a_problem_becomes_the_error_of_its_kind(status: int, code: str, kind: type[ApiError]) -> None:
    error = api_error(status, problem(status, code, queue="q", limit=5), b"7")
    assert type(error) is kind
    assert (error.status, error.code, error.title, error.detail) == (status, code, "T", "D")
    assert (error.fields, error.retry_after_s) == ({"queue": "q", "limit": 5}, 7.0)


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[1]", b"\xff\xfe"])
def test_an_answer_that_is_no_problem_is_told_all_the_same(body: bytes) -> None:
    error = api_error(502, body, b"Wed, 21 Oct 2026 07:28:00 GMT")
    assert isinstance(error, Unavailable)
    assert (error.status, error.code, error.retry_after_s) == (502, "http_error", None)
    assert error.detail


def test_an_error_is_put_into_words() -> None:
    assert [error_text(e) for e in (ValueError("bad"), KeyError(), "plain")] == [
        "ValueError: bad",
        "KeyError",
        "plain",
    ]


def pop(source: str | AnyQueue, **asked: Any) -> str:
    usual = {"batch": 1, "partition": None, "partitions": 1, "group": None, "wait_s": 0.0}
    return PopRequest(source=source, **{**usual, "auto_ack": False, "subscription": None, **asked}).path


def test_a_pop_says_only_what_differs() -> None:
    assert pop("orders") == "/api/v1/pop/queue/orders?batch=1"


def test_a_pop_says_everything() -> None:
    path = pop(
        "a b",
        batch=5,
        partition="x/ü",
        partitions=3,
        group="g&h",
        wait_s=1.5,
        auto_ack=True,
        subscription=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert path == (
        "/api/v1/pop/queue/a%20b/partition/x/%C3%BC?batch=5&partitions=3&consumerGroup=g%26h"
        "&wait=true&timeout=1500&autoAck=true&subscriptionFrom=2026-01-01T00%3A00%3A00%2B00%3A00"
    )


def test_a_pop_of_any_queue_names_no_partition() -> None:
    assert pop(AnyQueue(task="t"), subscription="new") == "/api/v1/pop?task=t&batch=1&subscriptionMode=new"
    with pytest.raises(ValueError, match="belongs to a queue"):
        pop(AnyQueue(namespace="n"), partition="p")
    with pytest.raises(ValueError, match="namespace, a task"):
        AnyQueue()


def test_the_synchronous_face_has_all_of_the_asynchronous_one() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if name.startswith("_") or name == "close":
            continue
        face = getattr(SyncClient, name)
        assert inspect.signature(face) == inspect.signature(method), name
        assert face.__doc__ == method.__doc__


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading of the guide."""
    lines = GUIDE.read_text().split(f"## {heading}\n", 1)[1].splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("|---"))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


def test_the_guide_lists_every_setting_with_its_default() -> None:
    written = {row[0]: row[1] for row in rows_after("Settings")}
    fields = ClientSettings.__dataclass_fields__
    assert written == {name: str(field.default) for name, field in fields.items()}


def test_the_guide_lists_every_option_of_a_consumer_with_its_default() -> None:
    written = {row[0]: row[1] for row in rows_after("Consumer options")}
    parameters = inspect.signature(Client.consume).parameters
    expected = {name: str(p.default) for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert written == expected
