"""Routes that search and export the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.access.audit.audit_log import (
    AuditCursor,
    AuditFilter,
    AuditLog,
    AuditRow,
    UnknownAuditEntry,
)
from penstock.api.access import AdminAccess
from penstock.api.http.parameters import MAX_ID, Text, Timestamp, refuse_unknown_parameters
from penstock.api.http.request_parsing import is_decimal
from penstock.api.http.response import json_response
from penstock.api.problems import described, problem_responses
from penstock.api.schemas.message_bodies import encode
from penstock.api.services import get_services
from penstock.caller import Caller
from penstock.clock import iso, to_utc
from penstock.errors import Forbidden, InvalidRequest, Unauthorized, UnknownEnvironment
from penstock.model import Scope

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden, UnknownEnvironment),
    prefix="/api/v1/audit",
    tags=["audit log"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

JSON_LINES = "application/x-ndjson"
EVERY_ENVIRONMENT = "*"
MAX_ENTRIES = 500
EPOCH = to_utc(0)

Subject = Annotated[Text, Query(description="who: token:NAME, user:SUBJECT or local, or NAME alone")]
Action = Annotated[Text, Query(description="part of the method and path, such as PUT or run-queues")]
ObjectText = Annotated[Text, Query(description="part of what the call was for, such as the name of a queue")]
Denied = Annotated[bool | None, Query(description="only calls that were denied, or only the others")]
Status = Annotated[int | None, Query(ge=100, le=599, description="status of the response")]
RequestId = Annotated[Text, Query(alias="requestId", description="X-Request-Id of the response")]
Start = Annotated[Timestamp | None, Query(alias="from")]
End = Annotated[Timestamp | None, Query(alias="to", description="exclusive")]
EnvironmentName = Annotated[
    Text,
    Query(
        description="organization/project/environment, also a deleted one, or `*` for all; only platform "
        "administrators may name another one than their own"
    ),
]
Cursor = Annotated[str | None, Query(max_length=60, description="nextCursor of the previous page")]


def audit_filter(
    caller: AdminAccess,
    subject: Subject = None,
    action: Action = None,
    object_text: Annotated[ObjectText, Query(alias="object")] = None,
    denied: Denied = None,
    status: Status = None,
    request_id: RequestId = None,
    start: Start = None,
    environment: EnvironmentName = None,
) -> AuditFilter:
    """Return the filter of a search that its caller may make. Raises UnknownEnvironment."""
    return AuditFilter(
        environment=_visible_environment(caller, environment),
        environment_name=None if environment == EVERY_ENVIRONMENT else environment,
        request_id=request_id,
        subject=subject,
        action=action,
        object_text=object_text,
        status=status,
        denied=denied,
        start=start,
    )


FilterParameters = Annotated[AuditFilter, Depends(audit_filter)]


@router.get("")
async def list_audit_entries(
    request: Request,
    caller: AdminAccess,
    filter_parameters: FilterParameters,
    end: End = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES, description="maximum number of results")] = 100,
) -> Response:
    """List the audit entries of the caller's environment, the latest first."""
    first = _parse_cursor(cursor) if cursor is not None else _first_cursor(end)
    rows = await _audit_log(request).list_entries(filter_parameters, first, limit=limit)
    next_cursor = f"{_microseconds(rows[-1].recorded_at)}-{rows[-1].id}" if len(rows) == limit else None
    return json_response({"entries": [entry_to_json(row) for row in rows], "nextCursor": next_cursor})


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=described(200, "one entry per line, as the list has them", JSON_LINES),
)
async def export_audit_entries(
    request: Request, caller: AdminAccess, filter_parameters: FilterParameters, end: End = None
) -> Response:
    """Stream all matching audit entries as JSON lines, the latest first."""
    pages = _audit_log(request).read_pages(filter_parameters, _first_cursor(end))
    first_page: list[AuditRow] = await anext(
        pages, []
    )  # an unreachable database is a 503, not a response that ends early
    return StreamingResponse(_to_lines(first_page, pages), media_type=JSON_LINES)


@router.get("/{entry_id}", responses=problem_responses(UnknownAuditEntry))
async def get_audit_entry(
    request: Request,
    caller: AdminAccess,
    entry_id: Annotated[int, Path(ge=1, le=MAX_ID)],
    environment: EnvironmentName = None,
) -> Response:
    """Show one audit entry."""
    row = await _audit_log(request).get(_visible_environment(caller, environment), entry_id)
    return json_response(entry_to_json(row))


def entry_to_json(row: AuditRow) -> dict[str, object]:
    """Return the JSON of an audit entry."""
    return {
        "id": str(row.id),
        "at": iso(row.recorded_at),
        "environment": row.environment or None,
        "subject": row.subject or None,
        "tokenId": None if row.token_id is None else str(row.token_id),
        "address": row.address,
        "action": row.action,
        "object": msgspec.Raw(row.object.encode()),
        "status": row.status,
        "denied": row.denied,
        "before": _raw_or_none(row.before),
        "after": _raw_or_none(row.after),
        "requestId": row.request_id,
    }


def _audit_log(request: Request) -> AuditLog:
    return get_services(request).audit_log


def _visible_environment(caller: Caller, name: str | None) -> Scope | None:
    """Return the environment that a search is limited to; None: no limit. Raises UnknownEnvironment."""
    if name in (None, "/".join(caller.environment)):
        return caller.environment
    if caller.is_platform_admin:
        return None
    raise UnknownEnvironment(f"Environment {name!r} does not exist. Leave environment out for your own.")


async def _to_lines(first_page: list[AuditRow], pages: AsyncIterator[list[AuditRow]]) -> AsyncIterator[bytes]:
    yield _lines_of(first_page)
    async for rows in pages:
        yield _lines_of(rows)


def _lines_of(rows: list[AuditRow]) -> bytes:
    return b"".join(encode(entry_to_json(row)) + b"\n" for row in rows)


def _raw_or_none(json: str | None) -> msgspec.Raw | None:
    return None if json is None else msgspec.Raw(json.encode())


def _first_cursor(end: datetime | None) -> AuditCursor:
    return AuditCursor() if end is None else AuditCursor(end, 0)


def _microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def _parse_cursor(text: str) -> AuditCursor:
    microseconds, _, entry_id = text.partition("-")
    if is_decimal(microseconds) and is_decimal(entry_id):
        with suppress(OverflowError):
            return AuditCursor(EPOCH + timedelta(microseconds=int(microseconds)), int(entry_id))
    raise InvalidRequest(f"cursor {text!r} is not valid. Use the nextCursor of a page.", field="cursor")
