"""Routes that group dead letters by error, and change the state, owner and note of a group."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Query
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Group, Limit, Offset, Queue, refuse_unknown_parameters
from penstock.api.http.request_parsing import parse_time, read_json, request_body_schema
from penstock.api.problems import problem_responses
from penstock.api.schemas.dead_letter_views import error_group_status_to_dict, error_group_to_dict
from penstock.api.services import get_services
from penstock.broker.dead_letters.dead_letter_service import UnknownErrorGroup
from penstock.broker.dead_letters.dead_letter_source import ErrorGroup, ErrorGroupQuery
from penstock.broker.durable_store import ErrorGroupChange
from penstock.caller import Caller
from penstock.errors import Forbidden, InvalidRequest, Unauthorized, UnknownQueue

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1/dlq",
    tags=["dead letters"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

MAX_COUNT = 1_000_000_000

State = Literal["back_again", "new", "open", "ignored", "resolved"]
Hours = Annotated[int, Query(ge=1, le=168, description="length of the trend in hours")]
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Owner = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\x00]*$")]
Note = Annotated[str, Meta(min_length=1, max_length=2000, pattern="^[^\\x00]*$")]


class IgnoredUntilBody(msgspec.Struct, forbid_unknown_fields=True):
    """When an ignored group is back again: whichever comes first."""

    time: str | None = None
    count: Count | None = None
    ratePerHour: Count | None = None


class ErrorGroupBody(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["open", "ignored", "resolved"] | UnsetType = UNSET
    ignoredUntil: IgnoredUntilBody | UnsetType = UNSET
    owner: Owner | UnsetType | None = UNSET
    note: Note | UnsetType | None = UNSET


_decoder = msgspec.json.Decoder(ErrorGroupBody)


@router.get("/groups", responses=problem_responses(UnknownQueue))
async def list_error_groups(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    group: Group | None = Query(None, alias="consumerGroup"),
    states: list[State] | None = Query(None, alias="state", description="only groups in these states"),
    hours: Hours = 24,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, object]:
    """Group dead letters by error, without the parts that differ from one error to the next.

    The most frequent error comes first. `trend` counts the present dead letters by the hour in which they
    failed, the current hour last. `state` is `new` until an operator sets it, and `back_again` after a
    resolved group got one more dead letter, or an ignored one reached what it was ignored until.
    """
    page = await get_services(request).broker.dead_letters.list_error_groups(
        caller.environment, ErrorGroupQuery(queue, group, states, hours=hours), limit=limit, offset=offset
    )
    return {
        "groups": [error_group_to_dict(error_group) for error_group in page.groups],
        "complete": page.is_complete,
        "pagination": {"limit": limit, "offset": offset, "total": page.total},
    }


@router.get("/error-groups/{error_group}", responses=problem_responses(UnknownErrorGroup, UnknownQueue))
async def get_error_group(
    request: Request,
    caller: ReadAccess,
    error_group: uuid.UUID,
    queue: Queue | None = None,
    hours: Hours = 24,
) -> dict[str, object]:
    """Return one error group. One that has a state is known even without dead letters.

    A group of a run queue needs `queue`.
    """
    dead_letters = get_services(request).broker.dead_letters
    return error_group_to_dict(
        await dead_letters.get_error_group(caller.environment, error_group, queue, hours)
    )


@router.patch(
    "/error-groups/{error_group}",
    responses=problem_responses(UnknownErrorGroup, UnknownQueue),
    openapi_extra=request_body_schema(ErrorGroupBody),
)
async def change_error_group(
    request: Request, caller: OperateAccess, error_group: uuid.UUID, queue: Queue | None = None
) -> dict[str, object]:
    """Set the state, owner or note of an error group, in one queue or in all queues that have it.

    Its dead letters stay. A resolved group is back again at the next dead letter. An ignored one is back
    again at `ignoredUntil.time`, after `count` more dead letters, or after more than `ratePerHour` in one
    clock hour, whichever is first. `null` removes an owner or a note. A group of a run queue needs `queue`.
    """
    change = _parse_change(await read_json(request, _decoder), caller)
    return await _change(request, caller, error_group, queue, change)


@router.post("/error-groups/{error_group}/resolve", responses=problem_responses(UnknownErrorGroup))
async def resolve_error_group(
    request: Request, caller: OperateAccess, error_group: uuid.UUID, queue: Queue | None = None
) -> dict[str, object]:
    """Declare an error group resolved, in one queue or in all queues that have it.

    Its dead letters stay. Alerts on new error groups stop for it, and fire again when a later dead letter has
    the same error.
    """
    change = ErrorGroupChange(state="resolved", changed_by=caller.subject)
    changed = await _change(request, caller, error_group, queue, change)
    return {key: changed[key] for key in ("success", "errorGroup", "queues")}


async def _change(
    request: Request, caller: Caller, error_group: uuid.UUID, queue: str | None, change: ErrorGroupChange
) -> dict[str, object]:
    dead_letters = get_services(request).broker.dead_letters

    def status(group: ErrorGroup) -> dict[str, object]:
        return error_group_status_to_dict(group.status)

    current = dead_letters.get_error_group
    before = await state_before(current(caller.environment, error_group, queue), status)
    queues = await dead_letters.change_error_group(caller.environment, error_group, queue, change)
    after = await state_before(current(caller.environment, error_group, queue), status)
    audit_change(request, before=before, after={**(after or {}), "queues": queues})
    return {"success": True, "errorGroup": str(error_group), "queues": queues, **(after or {})}


def _parse_change(body: ErrorGroupBody, caller: Caller) -> ErrorGroupChange:
    """Return the change that a body asks for. Raises InvalidRequest."""
    if body == ErrorGroupBody():
        raise InvalidRequest("The body changes nothing. Send state, owner or note.", field="state")
    conditions = IgnoredUntilBody()
    if body.ignoredUntil is not UNSET:
        if body.state != "ignored":
            raise InvalidRequest('ignoredUntil needs "state": "ignored".', field="ignoredUntil")
        conditions = body.ignoredUntil
        if conditions == IgnoredUntilBody():
            raise InvalidRequest("ignoredUntil needs time, count or ratePerHour.", field="ignoredUntil")
    until = None if conditions.time is None else parse_time("ignoredUntil.time", conditions.time)
    if until is not None and until <= datetime.now(UTC):
        raise InvalidRequest("ignoredUntil.time must be in the future.", field="ignoredUntil")
    return ErrorGroupChange(
        state=None if body.state is UNSET else body.state,
        ignored_until=until,
        ignored_count=conditions.count,
        ignored_rate=conditions.ratePerHour,
        sets_owner=body.owner is not UNSET,
        owner=None if body.owner is UNSET else body.owner,
        sets_note=body.note is not UNSET,
        note=None if body.note is UNSET else body.note,
        changed_by=caller.subject,
    )
