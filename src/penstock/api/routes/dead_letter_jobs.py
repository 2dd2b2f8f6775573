"""Requeueing and purging many dead letters: as jobs that can be watched and cancelled."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.auth import get_guards
from penstock.api.http.parameters import MAX_ID, Limit, Offset, parse_time
from penstock.api.http.request_parsing import check_name, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.schemas.dead_letter_views import dead_letter_to_dict
from penstock.api.services import get_services
from penstock.clock import iso
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1", tags=["dead letters"])

TASK_ID = re.compile("[0-9a-f-]{32,36}-[0-9]{1,4}")
MOST_IDS = 1_000
MOST_A_SECOND = 100_000
SAMPLE = 5


class WorkBody(msgspec.Struct, forbid_unknown_fields=True):
    letterIds: list[str] | None = None
    queue: str | None = None
    consumerGroup: str | None = None
    partition: str | None = None
    start: str | None = msgspec.field(default=None, name="from")
    end: str | None = msgspec.field(default=None, name="to")
    error: str | None = None
    errorGroup: uuid.UUID | None = None
    payload: str | None = None
    all: bool = False
    ratePerSecond: int | None = None
    dryRun: bool = False


_work_body = msgspec.json.Decoder(WorkBody)


@router.post("/dlq/requeue", openapi_extra=request_body_schema(WorkBody), status_code=202)
async def requeue(request: Request) -> Response:
    """Push every dead message that matches again, each to its own queue and partition. 202 with the job."""
    return await _work(request, "requeue")


@router.post("/dlq/purge", openapi_extra=request_body_schema(WorkBody), status_code=202)
async def purge(request: Request) -> Response:
    """Delete every dead letter that matches. 202 with the job."""
    return await _work(request, "purge")


@router.get("/jobs")
async def list_jobs(request: Request, limit: Limit = 100, offset: Offset = 0) -> dict[str, Any]:
    """Jobs on dead letters, the latest first; finished ones are kept for 31 days."""
    get_guards(request).check(request, remote=True)
    rows = await get_services(request).broker.store.jobs.list_jobs(DEFAULT_SCOPE, limit=limit, offset=offset)
    return {"jobs": [told(row) for row in rows], "pagination": {"limit": limit, "offset": offset}}


@router.get("/jobs/{job_id}")
async def get_job(request: Request, job_id: uuid.UUID) -> dict[str, Any]:
    """How far a job has come."""
    get_guards(request).check(request, remote=True)
    return told(await get_services(request).broker.dead_letters.job(DEFAULT_SCOPE, job_id))


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(request: Request, job_id: uuid.UUID) -> dict[str, Any]:
    """Stop a job: what it has done stays done. One that has ended is told as it is."""
    get_guards(request).check(request)
    return told(await get_services(request).broker.dead_letters.cancel(DEFAULT_SCOPE, job_id))


async def _work(request: Request, kind: str) -> Response:
    get_guards(request).check(request)
    body = await read_json(request, _work_body)
    which, letter_ids, task_ids = selection(body)
    if body.ratePerSecond is not None and not 1 <= body.ratePerSecond <= MOST_A_SECOND:
        raise InvalidRequest(
            f"ratePerSecond must be from 1 to {MOST_A_SECOND}, not {body.ratePerSecond}",
            field="ratePerSecond",
        )
    services = get_services(request)
    tasks = (
        services.broker.dead_letters.tasks
        if task_ids
        else await services.broker.dead_letter_catalog.run_queue_tasks(
            DEFAULT_SCOPE, which.queue, for_change=True
        )
    )
    if tasks is not None:
        if task_ids:
            which = replace(which, queue=await tasks.queue_of(DEFAULT_SCOPE, task_ids))
        if not body.dryRun:
            return accepted(
                await services.broker.dead_letters.make_task_job(
                    DEFAULT_SCOPE, kind, which, task_ids=task_ids, rate=body.ratePerSecond
                )
            )
        total, exact = (len(task_ids), True) if task_ids else await tasks.count(DEFAULT_SCOPE, which)
        return json_response(
            {"dryRun": True, "kind": kind, "filter": {"queue": which.queue, "letterIds": task_ids}}
            | {"total": total, "totalIsExact": exact, "latest": []}
        )
    job = await services.broker.dead_letters.make_job(
        DEFAULT_SCOPE, kind, which, letter_ids=letter_ids, rate=body.ratePerSecond, dry=body.dryRun
    )
    if not body.dryRun:
        return accepted(job)
    rows: list[Any] = []
    if letter_ids is None:
        rows = (await services.broker.store.dead_letters.read_page(DEFAULT_SCOPE, which, limit=SAMPLE)).rows
    return json_response(
        {
            "dryRun": True,
            "kind": kind,
            "filter": told(job)["filter"],
            "total": job["total"],
            "totalIsExact": job["total_is_exact"],
            "latest": [dead_letter_to_dict(services, row) for row in rows],
        }
    )


def accepted(job: Any) -> Response:
    """A job that was made, and where to ask about it."""
    response = json_response(told(job), {"Location": f"/api/v1/jobs/{job['id']}"})
    response.status_code = 202
    return response


def selection(body: WorkBody) -> tuple[DeadLetterFilter, list[int] | None, list[str] | None]:
    """Which letters a body means: a filter, or ids of letters, or ids of dead tasks.

    Refuses one that names nothing, unless it says that it means all.
    """
    which = DeadLetterFilter(
        _name("queue", body.queue),
        _name("consumerGroup", body.consumerGroup),
        _name("partition", body.partition),
        _maybe(lambda text: parse_time("from", text), body.start),
        _maybe(lambda text: parse_time("to", text), body.end),
        _text("error", body.error),
        body.errorGroup,
        _text("payload", body.payload),
    )
    named = which != DeadLetterFilter()
    if body.letterIds is not None:
        if named or body.all:
            raise InvalidRequest("letterIds cannot be combined with a filter or all", field="letterIds")
        if body.letterIds and all(map(TASK_ID.fullmatch, body.letterIds)):
            return which, None, _bounded(list(dict.fromkeys(body.letterIds)))
        return which, _letter_ids(body.letterIds), None
    if named == body.all:
        raise InvalidRequest('name what is meant: letterIds, a filter, or "all": true alone', field="all")
    return which, None, None


def told(row: Any) -> dict[str, Any]:
    """A job as it is shown."""
    note = row["note"]
    if note is not None and row["state"] == "running":
        reason, _, queue = note.partition(" ")
        note = {
            "queue_full": f"waits: queue {queue!r} has reached its maxSize",
            "behind": f"waits: pushes to queue {queue!r} that were accepted earlier come first",
        }.get(reason, note)
    return {
        "id": str(row["id"]),
        "kind": row["kind"],
        "state": row["state"],
        "filter": {
            "letterIds": [str(named) for named in row["dead_letter_ids"] or row["task_ids"] or ()] or None,
            "queue": row["queue"],
            "consumerGroup": row["group_name"],
            "partition": row["partition"],
            "from": iso_or_none(row["failed_from"]),
            "to": iso(row["failed_before"]),
            "error": row["error"],
            "errorGroup": row["error_key"],
            "payload": row["payload"],
        },
        "ratePerSecond": row["rate"],
        "total": row["total"],
        "totalIsExact": row["total_is_exact"],
        "lookedAt": row["scanned"],
        "changed": row["changed"],
        "note": note,
        "createdAt": iso(row["created_at"]),
        "startedAt": iso_or_none(row["started_at"]),
        "finishedAt": iso_or_none(row["finished_at"]),
    }


def _letter_ids(texts: list[str]) -> list[int]:
    for text in _bounded(texts):
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= MAX_ID):
            raise InvalidRequest(
                f"letterIds must be ids of letters of durable queues, or of one run queue, not {text[:40]!r}",
                field="letterIds",
            )
    return [int(text) for text in texts]


def _bounded(texts: list[str]) -> list[str]:
    if not 1 <= len(texts) <= MOST_IDS:
        raise InvalidRequest(f"letterIds must name 1 to {MOST_IDS} letters", field="letterIds")
    return texts


def _name(what: str, value: str | None) -> str | None:
    return None if value is None else check_name(what, value)


def _text(what: str, value: str | None) -> str | None:
    if value is not None and (not 0 < len(value) <= 255 or "\0" in value):
        raise InvalidRequest(f"{what} must have 1 to 255 characters, none of them NUL", field=what)
    return value


def _maybe(read: Callable[[str], datetime], value: str | None) -> datetime | None:
    return None if value is None else read(value)
