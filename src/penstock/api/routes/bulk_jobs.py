"""The route that deletes many messages or tasks, or moves them to the dead letters, as a job."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import NamedOperateAccess, check_access, check_group, check_queue
from penstock.api.audited_change import audit_change
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.http.request_parsing import (
    check_name,
    check_optional_name,
    check_text,
    parse_optional_time,
    read_json,
    request_body_schema,
)
from penstock.api.http.response import json_response
from penstock.api.problems import described, problem_responses
from penstock.api.routes.dead_letter_jobs import accepted, check_rate
from penstock.api.services import get_services
from penstock.broker.durable_store import BulkChange
from penstock.caller import AccessScope, Caller
from penstock.errors import Forbidden, InvalidRequest, Unauthorized, UnknownGroup, UnknownQueue

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1",
    tags=["dead letters"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

DEFAULT_REASON = "declared dead by a job"


class BulkJobBody(msgspec.Struct, forbid_unknown_fields=True):
    subject: Literal["messages", "tasks"]
    kind: Literal["purge", "dead_letter"]
    queue: str
    consumerGroup: str | None = None
    partition: str | None = None
    taskState: Literal["eligible", "delayed"] | None = None
    start: str | None = msgspec.field(default=None, name="from")
    end: str | None = msgspec.field(default=None, name="to")
    payload: str | None = None
    reason: str | None = None
    ratePerSecond: int | None = None
    dryRun: bool = False


_decoder = msgspec.json.Decoder(BulkJobBody)


@router.post(
    "/jobs",
    responses=described(200, "a dry run: how many match", "application/json")
    | problem_responses(UnknownQueue, UnknownGroup),
    openapi_extra=request_body_schema(BulkJobBody),
    status_code=202,
)
async def create_job(request: Request, caller: NamedOperateAccess) -> Response:
    """Delete messages or waiting tasks, or move them to the dead letters. 202 with the job.

    `kind` is `purge` or `dead_letter`. The job covers what was pushed before its creation, narrowed down by
    `partition`, `from`, `to` (times of the push), `payload` (a substring), and `taskState`. With
    `consumerGroup`, only messages that the group has not finished; `dead_letter` needs it for messages.
    Messages under a live lease are left alone and counted in `skipped`, and so are tasks that start
    meanwhile. `reason` is the error of the dead letters. Use /dlq/requeue and /dlq/purge for dead letters.
    """
    body = await read_json(request, _decoder)
    change = _parse_change(body, caller)
    dead_letters = get_services(request).broker.dead_letters
    if not body.dryRun:
        job = await dead_letters.create_bulk_job(caller.environment, body.subject, change)
        return accepted(request, job)
    total = await dead_letters.preview_bulk_job(caller.environment, body.subject, change)
    audit_change(request, dryRun=True)
    return json_response(
        {
            "dryRun": True,
            "subject": body.subject,
            "kind": body.kind,
            "total": total.total,
            "totalIsExact": total.is_exact,
        }
    )


def _parse_change(body: BulkJobBody, caller: Caller) -> BulkChange:
    """Return the job that a body asks for. Raises InvalidRequest or Forbidden."""
    check_queue(caller, body.queue)
    if body.subject == "messages":
        check_group(caller, body.consumerGroup)
    if body.payload is not None:
        check_access(caller, AccessScope.READ_PAYLOAD)
    if body.reason is not None and body.kind != "dead_letter":
        raise InvalidRequest("Only dead letters have a reason. Omit `reason`.", field="reason")
    return BulkChange(
        kind=body.kind,
        queue=check_name("queue", body.queue),
        group=check_optional_name("consumerGroup", body.consumerGroup),
        partition=check_optional_name("partition", body.partition),
        task_state=body.taskState,
        start=parse_optional_time("from", body.start),
        end=parse_optional_time("to", body.end),
        payload=check_text("payload", body.payload),
        reason=(check_text("reason", body.reason) or DEFAULT_REASON) if body.kind == "dead_letter" else None,
        rate=check_rate(body.ratePerSecond),
        created_by=caller.subject,
    )
