"""Turn errors into RFC 9457 problem details.

The body also has `error`, a copy of `detail` for clients of the older wire contract.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount
from starlette.types import Scope

from penstock.access.quotas.quota_definitions import CONNECTIONS
from penstock.errors import InvalidRequest, PenstockError, QuotaExceeded
from penstock.log_format import request_ids
from penstock.model import QUEUE_MODE, QUEUE_MODE_LABEL
from penstock.validation_text import describe_refusal

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


PROBLEM_SCHEMA: dict[str, object] = {
    "type": "object",
    "description": "problem details (RFC 9457); some problems have more fields",
    "required": ["type", "title", "status", "detail", "code", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what happened, and what to do"},
        "code": {"type": "string", "description": "stable, for programs"},
        "error": {"type": "string", "description": "a copy of detail"},
    },
}


def described(status: int, description: str, *media_types: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI `responses` of a route for a status of its own."""
    return {status: {"description": description, "content": {name: {} for name in media_types}}}


def problem_responses(*errors: type[PenstockError]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI `responses` of a route for the errors that it raises, by status."""
    titles: dict[str, list[str]] = {}
    for error in errors:
        titles.setdefault(str(error.status), []).append(error.title)
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": ", ".join(titles[status]), "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted(titles)
    }


def problem_response(
    status: int,
    title: str,
    detail: str,
    code: str,
    headers: Mapping[str, str] | None = None,
    fields: Mapping[str, object] | None = None,
) -> Response:
    body = _problem_body(status, title, detail, code, fields or {})
    return Response(msgspec.json.encode(body), status, headers, media_type=MEDIA_TYPE)


def problem_fields(error: PenstockError) -> dict[str, object]:
    """The body of an error's response, for errors that are reported inside of another response."""
    return _problem_body(error.status, error.title, error.detail, error.code, error.fields)


def _problem_body(
    status: int, title: str, detail: str, code: str, fields: Mapping[str, object]
) -> dict[str, object]:
    detail = detail.replace(QUEUE_MODE, QUEUE_MODE_LABEL)
    return {
        "type": f"urn:penstock:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "error": detail,
        **fields,
    }


async def handle_penstock_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PenstockError)
    request.state.error_code = error.code  # for the audit log
    response = from_penstock_error(error)
    if isinstance(error, QuotaExceeded) and error.quota == CONNECTIONS:
        response.headers["Connection"] = "close"
    return response


def from_penstock_error(error: PenstockError) -> Response:
    headers = None
    if error.status in (429, 503):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    if error.status == 401:
        headers = {"WWW-Authenticate": error.fields.get("challenge", "Bearer")}
    return problem_response(error.status, error.title, error.detail, error.code, headers, error.fields)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """The response to a request that matches no route, or that Starlette rejects."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    title = {404: "Not found", 405: "Method not allowed"}.get(error.status_code, "Request rejected")
    detail = error.detail
    headers = dict(error.headers or {})
    if error.status_code == 404:
        detail = f"No route matches {request.method} {request.url.path}. /docs lists the routes."
    elif error.status_code == 405:
        headers = {"Allow": ", ".join(_supported_methods(request))}
        detail = f"{request.url.path} does not support {request.method}. Use {headers['Allow']}."
    return problem_response(error.status_code, title, detail, code, headers)


def _supported_methods(request: Request) -> list[str]:
    """The methods of all routes of the request's path. Starlette names those of the first route only."""
    scope: Scope = {**request.scope, "root_path": request.scope.get("app_root_path", "")}
    methods = []
    for method in METHODS:
        for route in request.app.routes:
            match, _ = route.matches({**scope, "method": method})
            if match is Match.FULL and (method in ("GET", "HEAD") or not isinstance(route, Mount)):
                methods.append(method)
                break
    return methods


async def handle_unexpected_error(request: Request, error: Exception) -> Response:
    return from_unexpected_error(error, request.url.path)


def from_unexpected_error(error: Exception, path: str) -> Response:
    logger.error("unexpected error in %s", path, exc_info=error)
    ids = request_ids.get()
    return problem_response(
        500,
        "Internal error",
        "An unexpected error occurred. The broker's log has the details.",
        "internal",
        # The middleware that adds the header does not see this response.
        {"X-Request-Id": ids.request_id} if ids is not None else None,
    )


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """The response to a path or query parameter that FastAPI rejects: the first invalid one."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(name) for name in first["loc"][1:])
    detail = describe_refusal(field, first)
    return problem_response(
        InvalidRequest.status, InvalidRequest.title, detail, InvalidRequest.code, fields={"field": field}
    )
