"""Errors of the client: the class for each response, and the text of a handler's error."""

from __future__ import annotations

import json

import pytest

from penstock.client import (
    ApiError,
    InvalidRequest,
    LeaseLost,
    NotFound,
    Overloaded,
    ServerFault,
    Unavailable,
    WrongState,
)
from penstock.client.errors import api_error, error_text


def problem_body(status: int, code: str, **fields: object) -> bytes:
    """Return problem details as the broker sends them."""
    problem = {"type": f"urn:penstock:error:{code}", "title": "T", "status": status, "code": code}
    return json.dumps({**problem, "detail": "D", "error": "D", **fields}).encode()


@pytest.mark.parametrize(
    ("status", "code", "error_type"),
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
def test_status_and_code_select_the_error_class(status: int, code: str, error_type: type[ApiError]) -> None:
    error = api_error(status, problem_body(status, code, queue="q", limit=5), b"7")
    assert type(error) is error_type
    assert (error.status, error.code, error.title, error.detail) == (status, code, "T", "D")
    assert (error.fields, error.retry_after_s) == ({"queue": "q", "limit": 5}, 7.0)


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[1]", b"\xff\xfe"])
def test_a_body_without_problem_details_becomes_an_error_too(body: bytes) -> None:
    error = api_error(502, body, b"Wed, 21 Oct 2026 07:28:00 GMT")
    assert isinstance(error, Unavailable)
    assert (error.status, error.code, error.retry_after_s) == (502, "http_error", None)
    assert error.detail


def test_the_text_of_an_error_has_its_class_and_message() -> None:
    assert [error_text(error) for error in (ValueError("bad"), KeyError(), "plain")] == [
        "ValueError: bad",
        "KeyError",
        "plain",
    ]
