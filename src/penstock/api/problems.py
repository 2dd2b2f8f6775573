"""Errors as RFC 9457 problem details.

The body also carries `error`, the sentence that clients of the older wire contract read.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import PenstockError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


def problem(
    status: int, title: str, detail: str, code: str, headers: dict[str, str] | None = None, **fields: Any
) -> Response:
    body = {
        "type": f"urn:penstock:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "error": detail,
        **fields,
    }
    return Response(msgspec.json.encode(body), status, headers, media_type=MEDIA_TYPE)


async def on_penstock_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    return from_penstock_error(error)


def from_penstock_error(error: PenstockError) -> Response:
    headers = None
    if error.status in (429, 503):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    if error.status == 401:
        headers = {"WWW-Authenticate": error.fields.get("challenge", "Bearer")}
    return problem(error.status, error.title, error.detail, error.code, headers, **error.fields)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    detail = error.detail
    if error.status_code == 404:
        detail = f"there is nothing at {request.method} {request.url.path}; /docs lists the routes"
    return problem(
        error.status_code, "The request cannot be answered", detail, code, dict(error.headers or {})
    )


async def on_unexpected(request: Request, error: Exception) -> Response:
    return from_unexpected_error(error, request.url.path)


def from_unexpected_error(error: Exception, path: str) -> Response:
    logger.error("unexpected error in %s", path, exc_info=error)
    return problem(500, "Something went wrong", "an unexpected error; the broker's log has it", "internal")


async def on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    detail = f"{where}: {first['msg']}, not {first.get('input')!r}"
    return problem(422, "The request is not valid", detail, "invalid_request", field=where)
