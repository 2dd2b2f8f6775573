"""Routes that requeue or purge many dead letters, as jobs that can be watched and cancelled."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.auth import get_guards
from penstock.api.http.parameters import MAX_ID, Limit, Offset, parse_time
from penstock.api.http.request_parsing import check_name, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.schemas.dead_letter_views import dead_letter_to_dict
from penstock.api.services import Services, get_services
from penstock.broker.dead_letters.task_dead_letters import TaskDeadLetters
from penstock.broker.durable_store import DeadLetter, DeadLetterFilter, DeadLetterJob
from penstock.clock import iso
from penstock.errors import InvalidRequest
from penstock.model import DEFAULT_SCOPE

router = APIRouter(prefix="/api/v1", tags=["dead letters"])

TASK_ID_PATTERN = re.compile("[0-9a-f-]{32,36}-[0-9]{1,4}")
MAX_IDS = 1_000
MAX_RATE_PER_SECOND = 100_000
MAX_TEXT_LENGTH = 255
SAMPLE_SIZE = 5
"""Dead letters that a dry run shows."""


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
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


class JobSelection(NamedTuple):
    """The dead letters of a job: those of a filter, or the named dead letters, or the named dead tasks."""

    filter: DeadLetterFilter
    dead_letter_ids: list[int] | None = None
    task_ids: list[str] | None = None


_job_decoder = msgspec.json.Decoder(JobBody)


@router.post("/dlq/requeue", openapi_extra=request_body_schema(JobBody), status_code=202)
async def requeue(request: Request) -> Response:
    """Push every matching dead message again, each to its own queue and partition. 202 with the job."""
    return await _create_job(request, "requeue")


@router.post("/dlq/purge", openapi_extra=request_body_schema(JobBody), status_code=202)
async def purge(request: Request) -> Response:
    """Delete every matching dead letter. 202 with the job."""
    return await _create_job(request, "purge")


@router.get("/jobs")
async def list_jobs(request: Request, limit: Limit = 100, offset: Offset = 0) -> dict[str, object]:
    """List jobs on dead letters, the latest first. Finished ones are kept for 31 days."""
    get_guards(request).check(request, remote=True)
    jobs = await get_services(request).broker.store.jobs.list_jobs(DEFAULT_SCOPE, limit=limit, offset=offset)
    return {"jobs": [job_to_json(job) for job in jobs], "pagination": {"limit": limit, "offset": offset}}


@router.get("/jobs/{job_id}")
async def get_job(request: Request, job_id: uuid.UUID) -> dict[str, object]:
    """Report the progress of a job."""
    get_guards(request).check(request, remote=True)
    return job_to_json(await get_services(request).broker.dead_letters.get_job(DEFAULT_SCOPE, job_id))


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(request: Request, job_id: uuid.UUID) -> dict[str, object]:
    """Cancel a job. Its changes stay; a job that has ended is returned as it is."""
    get_guards(request).check(request)
    return job_to_json(await get_services(request).broker.dead_letters.cancel_job(DEFAULT_SCOPE, job_id))


async def _create_job(request: Request, kind: str) -> Response:
    get_guards(request).check(request)
    body = await read_json(request, _job_decoder)
    selection = parse_selection(body)
    if body.ratePerSecond is not None and not 1 <= body.ratePerSecond <= MAX_RATE_PER_SECOND:
        raise InvalidRequest(
            f"ratePerSecond must be from 1 to {MAX_RATE_PER_SECOND}, not {body.ratePerSecond}.",
            field="ratePerSecond",
        )
    services = get_services(request)
    if selection.task_ids:
        tasks = services.broker.dead_letters.tasks
    else:
        tasks = await services.broker.dead_letter_catalog.run_queue_tasks(
            DEFAULT_SCOPE, selection.filter.queue, for_change=True
        )
    if tasks is not None:
        return await _create_task_job(services, tasks, kind, selection, body)
    job = await services.broker.dead_letters.create_job(
        DEFAULT_SCOPE,
        kind,
        selection.filter,
        dead_letter_ids=selection.dead_letter_ids,
        rate=body.ratePerSecond,
        dry_run=body.dryRun,
    )
    if not body.dryRun:
        return accepted(job)
    sample: list[DeadLetter] = []
    if selection.dead_letter_ids is None:
        page = await services.broker.store.dead_letters.read_page(
            DEFAULT_SCOPE, selection.filter, limit=SAMPLE_SIZE
        )
        sample = page.dead_letters
    return json_response(
        {
            "dryRun": True,
            "kind": kind,
            "filter": job_to_json(job)["filter"],
            "total": job.total,
            "totalIsExact": job.total_is_exact,
            "latest": [dead_letter_to_dict(services, dead_letter) for dead_letter in sample],
        }
    )


async def _create_task_job(
    services: Services, tasks: TaskDeadLetters, kind: str, selection: JobSelection, body: JobBody
) -> Response:
    """Create a job on the dead tasks of a run queue, or answer a dry run."""
    task_filter, task_ids = selection.filter, selection.task_ids
    if task_ids:
        task_filter = replace(task_filter, queue=await tasks.find_queue(DEFAULT_SCOPE, task_ids))
    if not body.dryRun:
        return accepted(
            await services.broker.dead_letters.create_task_job(
                DEFAULT_SCOPE, kind, task_filter, task_ids=task_ids, rate=body.ratePerSecond
            )
        )
    total, is_exact = (len(task_ids), True) if task_ids else await tasks.count(DEFAULT_SCOPE, task_filter)
    return json_response(
        {
            "dryRun": True,
            "kind": kind,
            "filter": {"queue": task_filter.queue, "letterIds": task_ids},
            "total": total,
            "totalIsExact": is_exact,
            "latest": [],
        }
    )


def accepted(job: DeadLetterJob) -> Response:
    """Return a 202 with a new job and its location."""
    response = json_response(job_to_json(job), {"Location": f"/api/v1/jobs/{job.id}"})
    response.status_code = 202
    return response


def parse_selection(body: JobBody) -> JobSelection:
    """Return the dead letters that a body selects.

    Raises InvalidRequest for a body that selects nothing, unless it says `"all": true`.
    """
    dead_letter_filter = DeadLetterFilter(
        _check_name("queue", body.queue),
        _check_name("consumerGroup", body.consumerGroup),
        _check_name("partition", body.partition),
        _parse_time("from", body.start),
        _parse_time("to", body.end),
        _check_text("error", body.error),
        body.errorGroup,
        _check_text("payload", body.payload),
    )
    has_filter = dead_letter_filter != DeadLetterFilter()
    if body.letterIds is not None:
        if has_filter or body.all:
            raise InvalidRequest("letterIds cannot be combined with a filter or all.", field="letterIds")
        if body.letterIds and all(map(TASK_ID_PATTERN.fullmatch, body.letterIds)):
            task_ids = _check_id_count(list(dict.fromkeys(body.letterIds)))
            return JobSelection(dead_letter_filter, task_ids=task_ids)
        return JobSelection(dead_letter_filter, dead_letter_ids=_parse_dead_letter_ids(body.letterIds))
    if has_filter == body.all:
        raise InvalidRequest('Send letterIds, or a filter, or "all": true alone.', field="all")
    return JobSelection(dead_letter_filter)


def job_to_json(job: DeadLetterJob) -> dict[str, object]:
    """Return the JSON of a job."""
    ids = job.dead_letter_ids or job.task_ids or ()
    return {
        "id": str(job.id),
        "kind": job.kind,
        "state": job.state,
        "filter": {
            "letterIds": [str(dead_letter_id) for dead_letter_id in ids] or None,
            "queue": job.queue,
            "consumerGroup": job.group_name,
            "partition": job.partition,
            "from": iso_or_none(job.failed_from),
            "to": iso(job.failed_before),
            "error": job.error,
            "errorGroup": job.error_key,
            "payload": job.payload,
        },
        "ratePerSecond": job.rate,
        "total": job.total,
        "totalIsExact": job.total_is_exact,
        "lookedAt": job.scanned,
        "changed": job.changed,
        "note": _describe_note(job),
        "createdAt": iso(job.created_at),
        "startedAt": iso_or_none(job.started_at),
        "finishedAt": iso_or_none(job.finished_at),
    }


def _describe_note(job: DeadLetterJob) -> str | None:
    """Return the note of a job; of a running job, it is what the job waits for: `reason queue`."""
    if job.note is None or job.state != "running":
        return job.note
    reason, _, queue = job.note.partition(" ")
    return {
        "queue_full": f"waits: queue {queue!r} has reached its maxSize",
        "behind": f"waits: pushes to queue {queue!r} that were accepted earlier come first",
    }.get(reason, job.note)


def _parse_dead_letter_ids(texts: list[str]) -> list[int]:
    for text in _check_id_count(texts):
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= MAX_ID):
            raise InvalidRequest(
                "letterIds must be ids of dead letters of durable queues, or of one run queue, "
                f"not {text[:40]!r}.",
                field="letterIds",
            )
    return [int(text) for text in texts]


def _check_id_count(texts: list[str]) -> list[str]:
    if not 1 <= len(texts) <= MAX_IDS:
        raise InvalidRequest(f"letterIds must have 1 to {MAX_IDS} ids.", field="letterIds")
    return texts


def _check_name(field: str, name: str | None) -> str | None:
    return None if name is None else check_name(field, name)


def _check_text(field: str, text: str | None) -> str | None:
    if text is not None and (not 0 < len(text) <= MAX_TEXT_LENGTH or "\0" in text):
        raise InvalidRequest(
            f"{field} must have 1 to {MAX_TEXT_LENGTH} characters, none of them NUL.", field=field
        )
    return text


def _parse_time(field: str, text: str | None) -> datetime | None:
    return None if text is None else parse_time(field, text)
