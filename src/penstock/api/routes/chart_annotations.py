"""Routes of annotations: events that the charts of queues mark, such as a deploy or a pause."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import NamedOperateAccess, ReadAccess, check_group, check_queue
from penstock.api.annotated_change import CHANGE_KINDS
from penstock.api.audited_change import audit_change
from penstock.api.http.parameters import MAX_ID, Limit, Queue, Timestamp, refuse_unknown_parameters
from penstock.api.http.request_parsing import check_name, parse_time, read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import described, problem_responses
from penstock.api.services import get_services
from penstock.broker.durable_store import Annotation, AnnotationFilter, AnnotationStore, NewAnnotation
from penstock.clock import iso, system_clock, to_utc
from penstock.errors import Forbidden, InvalidRequest, PenstockError, Unauthorized

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1/annotations",
    tags=["annotations"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

RESERVED_KINDS = (*CHANGE_KINDS, "incident")
DEFAULT_WINDOW = timedelta(hours=24)
"""Length of the listed time if the request names no start."""

AnnotationId = Annotated[int, Path(ge=1, le=MAX_ID, description="id of the annotation")]
Kind = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,31}$")]
AnnotationText = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=r"^[^\x00]*$")]
AnnotationLink = Annotated[str, msgspec.Meta(max_length=2_000, pattern=r"^https?://[!-~]+$")]
IdempotencyKey = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class UnknownAnnotation(PenstockError):
    code = "unknown_annotation"
    status = 404
    title = "Unknown annotation"


class AnnotationBody(msgspec.Struct, forbid_unknown_fields=True):
    """An event to mark: at a moment, or until `end`; of one queue, or of the whole environment."""

    text: AnnotationText
    kind: Kind = "note"
    queue: str | None = None
    at: str | None = None
    end: str | None = None
    link: AnnotationLink | None = None
    key: IdempotencyKey | None = None


_annotation_decoder = msgspec.json.Decoder(AnnotationBody)


@router.post(
    "",
    status_code=201,
    responses=described(200, "an earlier request with the same key added it", "application/json"),
    openapi_extra=request_body_schema(AnnotationBody),
)
async def add_annotation(request: Request, caller: NamedOperateAccess) -> Response:
    """Mark an event in the charts: `deploy`, or any other kind and text.

    Without `queue` it is in the charts of all queues. A request with a `key` can be repeated safely.
    """
    annotation = _parse_body(await read_json(request, _annotation_decoder), caller.subject)
    check_queue(caller, annotation.queue)
    check_group(caller, None)
    added = await _store(request).add(caller.environment, annotation)
    if added.is_new:
        audit_change(request, after=annotation_to_json(added))
    response = json_response(annotation_to_json(added))
    response.status_code = 201 if added.is_new else 200
    return response


@router.get("")
async def list_annotations(
    request: Request,
    caller: ReadAccess,
    queue: Queue | None = None,
    kind: Annotated[str | None, Query(pattern="^[a-z][a-z0-9-]{0,31}$")] = None,
    start: Timestamp | None = Query(None, alias="from", description="24 hours before `to` if left out"),
    end: Timestamp | None = Query(None, alias="to", description="now if left out"),
    limit: Limit = 200,
) -> dict[str, object]:
    """List annotations and incidents, the latest first: of a queue and of the whole environment.

    Pauses, limits, seeks, requeues, purges and changed options are annotations too. `complete` is false if
    the time has more than `limit` of them.
    """
    until = to_utc(system_clock()) if end is None else end
    since = until - DEFAULT_WINDOW if start is None else start
    if since >= until:
        raise InvalidRequest("from must be before to.", field="from")
    annotation_filter = AnnotationFilter(queue=queue, kind=kind, start=since, end=until)
    annotations = await _store(request).list_annotations(
        caller.environment, annotation_filter, limit=limit + 1
    )
    return {
        "annotations": [annotation_to_json(annotation) for annotation in annotations[:limit]],
        "complete": len(annotations) <= limit,
        "from": iso(since),
        "to": iso(until),
    }


@router.delete("/{annotation_id}", responses=problem_responses(UnknownAnnotation))
async def delete_annotation(
    request: Request, caller: NamedOperateAccess, annotation_id: AnnotationId
) -> dict[str, object]:
    """Delete an annotation."""
    check_group(caller, None)
    store = _store(request)
    annotation = await store.find(caller.environment, annotation_id)
    if annotation is not None:
        check_queue(caller, annotation.queue)
    if annotation is None or not await store.delete(caller.environment, annotation_id):
        raise UnknownAnnotation(
            f"There is no annotation {annotation_id}. GET /api/v1/annotations lists them.",
            id=str(annotation_id),
        )
    audit_change(request, before=annotation_to_json(annotation))
    return {"deleted": True, "id": annotation.id}


def annotation_to_json(annotation: Annotation) -> dict[str, object]:
    """Return the JSON of an annotation or incident."""
    return {
        "id": annotation.id,
        "kind": annotation.kind,
        "at": iso(annotation.at),
        "end": iso_or_none(annotation.end_at),
        "ongoing": annotation.ongoing,
        "queue": annotation.queue,
        "text": annotation.text,
        "subject": annotation.subject,
        "link": annotation.link,
    }


def _parse_body(body: AnnotationBody, subject: str) -> NewAnnotation:
    if body.kind in RESERVED_KINDS:
        raise InvalidRequest(
            f"The broker itself writes annotations of kind {body.kind!r}. Use deploy, note or your own kind.",
            field="kind",
        )
    start = None if body.at is None else parse_time("at", body.at)
    end = None if body.end is None else parse_time("end", body.end)
    if end is not None and (start is None or end < start):
        raise InvalidRequest("end needs an `at` that is not after it.", field="end")
    return NewAnnotation(
        kind=body.kind,
        text=body.text,
        subject=subject,
        queue=None if body.queue is None else check_name("queue", body.queue),
        at=start,
        end_at=end,
        link=body.link,
        key=body.key,
    )


def _store(request: Request) -> AnnotationStore:
    return get_services(request).broker.store.annotations
