"""Routes that requeue or purge many dead letters, as jobs that can be watched and cancelled."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import (
    NamedOperateAccess,
    OperateAccess,
    ReadAccess,
    check_access,
    check_group,
    check_queue,
)
from penstock.api.annotated_change import annotate_change
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, refuse_unknown_parameters
from penstock.api.http.request_parsing import (
    check_optional_name,
    check_text,
    is_decimal,
    parse_optional_time,
    read_json,
    request_body_schema,
)
from penstock.api.http.response import json_response
from penstock.api.problems import described, problem_responses
from penstock.api.schemas.dead_letter_views import dead_letter_to_dict
from penstock.api.schemas.job_views import filter_to_json, job_to_json
from penstock.api.services import get_services
from penstock.broker.dead_letters.dead_letter_service import UnknownJob
from penstock.broker.dead_letters.dead_letter_source import JobRequest
from penstock.broker.durable_store import DeadLetterFilter, DeadLetterJob, JobSample
from penstock.caller import AccessScope, Caller
from penstock.errors import (
    Forbidden,
    InvalidRequest,
    Unauthorized,
    UnknownGroup,
    UnknownQueue,
    UnknownTask,
    WrongState,
)
from penstock.validation_text import shorten

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1",
    tags=["dead letters"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

TASK_ID_PATTERN = re.compile("[0-9a-f-]{32,36}-[0-9]{1,4}")
MAX_IDS = 1_000
MAX_ANNOTATED_QUEUES = 20
MAX_RATE_PER_SECOND = 100_000
MAX_SAMPLE = 1_000
MAX_SAMPLE_TIMEOUT_S = 86_400


JOB_RESPONSES = described(
    200, "a dry run: how many dead letters match", "application/json"
) | problem_responses(UnknownQueue, UnknownGroup, UnknownTask, WrongState)


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
    sample: int | None = None
    sampleShare: float | None = None
    sampleTimeoutSeconds: int | None = None
    dryRun: bool = False


_job_decoder = msgspec.json.Decoder(JobBody)


@router.post(
    "/dlq/requeue",
    responses=JOB_RESPONSES,
    openapi_extra=request_body_schema(JobBody),
    status_code=202,
)
async def requeue(request: Request, caller: NamedOperateAccess) -> Response:
    """Push every matching dead message again, each to its own queue and partition. 202 with the job.

    With `sample`, the job requeues so many first and waits until each is acked or dead again. It goes on if
    at least `sampleShare` of them (1: all) were acked within `sampleTimeoutSeconds` (600), and fails
    otherwise.
    """
    return await _create_job(request, caller, "requeue")


@router.post(
    "/dlq/purge",
    responses=JOB_RESPONSES,
    openapi_extra=request_body_schema(JobBody),
    status_code=202,
)
async def purge(request: Request, caller: NamedOperateAccess) -> Response:
    """Delete every matching dead letter. 202 with the job."""
    return await _create_job(request, caller, "purge")


@router.get("/jobs")
async def list_jobs(
    request: Request, caller: ReadAccess, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """List jobs on dead letters, the latest first. Finished ones are kept for 31 days."""
    jobs = await get_services(request).broker.dead_letters.list_jobs(
        caller.environment, limit=limit, offset=offset
    )
    return {"jobs": [job_to_json(job) for job in jobs], "pagination": {"limit": limit, "offset": offset}}


@router.get("/jobs/{job_id}", responses=problem_responses(UnknownJob))
async def get_job(request: Request, caller: ReadAccess, job_id: uuid.UUID) -> dict[str, object]:
    """Report the progress of a job."""
    return job_to_json(await get_services(request).broker.dead_letters.get_job(caller.environment, job_id))


@router.post("/jobs/{job_id}/cancel", responses=problem_responses(UnknownJob))
async def cancel_job(request: Request, caller: OperateAccess, job_id: uuid.UUID) -> dict[str, object]:
    """Cancel a job. Its changes stay; a job that has ended is returned as it is."""
    dead_letters = get_services(request).broker.dead_letters
    before = await state_before(dead_letters.get_job(caller.environment, job_id), job_to_json)
    after = job_to_json(await dead_letters.cancel_job(caller.environment, job_id))
    audit_change(request, before=before, after=after)
    return after


async def _create_job(request: Request, caller: Caller, kind: str) -> Response:
    body = await read_json(request, _job_decoder)
    job_request = parse_job_request(kind, body)._replace(created_by=caller.subject)
    selects_by_id = job_request.letter_ids is not None
    check_queue(caller, None if selects_by_id else body.queue)
    check_group(caller, None if selects_by_id else body.consumerGroup)
    if body.payload is not None:
        check_access(caller, AccessScope.READ_PAYLOAD)
    dead_letters = get_services(request).broker.dead_letters
    if not body.dryRun:
        if kind == "purge":
            return accepted(request, await dead_letters.create_job(caller.environment, job_request))
        # They are counted first, because the job deletes the dead letters that it requeues.
        counts = await dead_letters.count_job_by_queue(caller.environment, job_request)
        job = await dead_letters.create_job(caller.environment, job_request)
        await annotate_requeue(request, caller, job, counts)
        return accepted(request, job)
    preview = await dead_letters.preview_job(caller.environment, job_request)
    audit_change(request, dryRun=True)
    return json_response(
        {
            "dryRun": True,
            "kind": kind,
            "filter": filter_to_json(preview.selection, job_request.letter_ids),
            "total": preview.total.total,
            "totalIsExact": preview.total.is_exact,
            "latest": [dead_letter_to_dict(caller, dead_letter) for dead_letter in preview.latest],
        }
    )


async def annotate_requeue(
    request: Request, caller: Caller, job: DeadLetterJob, counts: Mapping[str, int]
) -> None:
    """Mark the start of a job that requeues dead letters in the charts of its queues.

    `counts` are those of dead letters that were selected by id. A filter without a queue, or ids of many
    queues, mark the charts of the whole environment.
    """
    if 0 < len(counts) <= MAX_ANNOTATED_QUEUES:
        for queue, count in counts.items():
            text = f"Requeue started: {count:,} dead letters"
            await annotate_change(request, caller, "requeue", text, queue=queue)
        return
    about = "" if job.total_is_exact else "about "
    text = f"Requeue started: {about}{job.total:,} dead letters"
    await annotate_change(request, caller, "requeue", text, queue=job.selection.queue)


def accepted(request: Request, job: DeadLetterJob) -> Response:
    """Return a 202 with a new job and its location."""
    audit_change(request, after=job_to_json(job))
    response = json_response(job_to_json(job), {"Location": f"/api/v1/jobs/{job.id}"})
    response.status_code = 202
    return response


def parse_job_request(kind: str, body: JobBody) -> JobRequest:
    """Return the job that a body asks for.

    Raises InvalidRequest for a body that selects nothing, unless it says `"all": true`.
    """
    dead_letter_filter = DeadLetterFilter(
        check_optional_name("queue", body.queue),
        check_optional_name("consumerGroup", body.consumerGroup),
        check_optional_name("partition", body.partition),
        parse_optional_time("from", body.start),
        parse_optional_time("to", body.end),
        check_text("error", body.error),
        body.errorGroup,
        check_text("payload", body.payload),
    )
    has_filter = dead_letter_filter != DeadLetterFilter()
    letter_ids = None
    if body.letterIds is not None:
        if has_filter or body.all:
            raise InvalidRequest("letterIds cannot be combined with a filter or all.", field="letterIds")
        letter_ids = _check_letter_ids(body.letterIds)
    elif has_filter == body.all:
        raise InvalidRequest('Send letterIds, or a filter, or "all": true alone.', field="all")
    rate = check_rate(body.ratePerSecond)
    return JobRequest(kind, dead_letter_filter, letter_ids, rate, _parse_sample(kind, body))


def check_rate(rate: int | None) -> int | None:
    """Return the rate of a job. Raises InvalidRequest."""
    if rate is not None and not 1 <= rate <= MAX_RATE_PER_SECOND:
        raise InvalidRequest(
            f"ratePerSecond must be from 1 to {MAX_RATE_PER_SECOND}, not {rate}.", field="ratePerSecond"
        )
    return rate


def _parse_sample(kind: str, body: JobBody) -> JobSample | None:
    """Return the sample that a body asks for. Raises InvalidRequest."""
    if body.sample is None:
        if body.sampleShare is not None or body.sampleTimeoutSeconds is not None:
            raise InvalidRequest("sampleShare and sampleTimeoutSeconds need sample.", field="sample")
        return None
    if kind != "requeue":
        raise InvalidRequest("Only a requeue has a sample. Omit `sample`.", field="sample")
    if not 1 <= body.sample <= MAX_SAMPLE:
        raise InvalidRequest(f"sample must be from 1 to {MAX_SAMPLE}, not {body.sample}.", field="sample")
    share = JobSample(1).share if body.sampleShare is None else body.sampleShare
    if not 0 < share <= 1:
        raise InvalidRequest("sampleShare must be more than 0 and at most 1.", field="sampleShare")
    timeout_s = body.sampleTimeoutSeconds
    if timeout_s is None:
        timeout_s = JobSample(1).timeout_s
    if not 1 <= timeout_s <= MAX_SAMPLE_TIMEOUT_S:
        raise InvalidRequest(
            f"sampleTimeoutSeconds must be from 1 to {MAX_SAMPLE_TIMEOUT_S}.", field="sampleTimeoutSeconds"
        )
    return JobSample(body.sample, share, timeout_s)


def _check_letter_ids(texts: list[str]) -> list[str]:
    """Return the ids, of tasks once each. Raises InvalidRequest unless all are valid and of one kind."""
    are_tasks = all(map(TASK_ID_PATTERN.fullmatch, texts))
    letter_ids = list(dict.fromkeys(texts)) if are_tasks else texts
    if not 1 <= len(letter_ids) <= MAX_IDS:
        raise InvalidRequest(f"letterIds must have 1 to {MAX_IDS} ids.", field="letterIds")
    for text in () if are_tasks else letter_ids:
        if not (is_decimal(text) and int(text) > 0):
            raise InvalidRequest(
                "letterIds must be ids of dead letters of durable queues, or of one run queue, "
                f"not {shorten(text)!r}.",
                field="letterIds",
            )
    return letter_ids
