"""Routes that show incidents with what decided them, and let people acknowledge and annotate them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.alerts.incidents.incident_service import (
    AlertIncidents,
    IncidentDetails,
    IncidentFilter,
    IncidentNote,
    IncidentRecord,
    NoChart,
    UnknownIncident,
)
from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, Queue, Text, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import problem_responses
from penstock.api.routes.alert_channels import notice_to_json
from penstock.api.services import get_services
from penstock.body_error_text import PRINTABLE_PATTERN, STORABLE_PATTERN
from penstock.clock import iso
from penstock.errors import Forbidden, Unauthorized, WrongState

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1/incidents",
    tags=["alerts"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

IncidentState = Annotated[
    Literal["unresolved", "open", "acknowledged", "resolved"] | None,
    Query(description="state of the incident; `unresolved` is open or acknowledged"),
]
IncidentSeverity = Annotated[Literal["info", "warning", "critical"] | None, Query()]

Person = Annotated[str, msgspec.Meta(max_length=255, pattern=PRINTABLE_PATTERN)]
NoteText = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000, pattern=STORABLE_PATTERN)]


class AcknowledgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The person that acknowledges an incident."""

    by: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=PRINTABLE_PATTERN)]


class NoteBody(msgspec.Struct, forbid_unknown_fields=True):
    """A note about an incident."""

    text: NoteText
    author: Person = ""


class StoredQueue(msgspec.Struct):
    """A queue of an incident, as the store returns it."""

    queue: str
    fired_at: datetime
    resolved_at: datetime | None
    value: float | None
    threshold: float | None
    summary: str
    notified_at: datetime | None


_acknowledge_decoder = msgspec.json.Decoder(AcknowledgeBody)
_note_decoder = msgspec.json.Decoder(NoteBody)
_queues_decoder = msgspec.json.Decoder(list[StoredQueue])


@router.get("")
async def list_incidents(
    request: Request,
    caller: ReadAccess,
    state: IncidentState = None,
    queue: Queue | None = None,
    rule: Text = None,
    severity: IncidentSeverity = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """List incidents, the latest first, each with its first queues."""
    incident_filter = IncidentFilter(state=state, queue=queue, rule=rule, severity=severity)
    incidents = await _incidents(request).list_incidents(
        caller.environment, incident_filter, limit=limit, offset=offset
    )
    pagination = {"limit": limit, "offset": offset}
    return {"incidents": [incident_to_json(incident) for incident in incidents], "pagination": pagination}


@router.get("/{incident_id}", responses=problem_responses(UnknownIncident))
async def get_incident(request: Request, caller: ReadAccess, incident_id: uuid.UUID) -> dict[str, object]:
    """Show an incident: its rule, queues, the values that decided, the cause, notes and notices."""
    return details_to_json(await _incidents(request).get(caller.environment, incident_id))


@router.post(
    "/{incident_id}/acknowledge",
    responses=problem_responses(UnknownIncident, WrongState),
    openapi_extra=request_body_schema(AcknowledgeBody),
)
async def acknowledge_incident(
    request: Request, caller: OperateAccess, incident_id: uuid.UUID
) -> dict[str, object]:
    """Acknowledge an open incident: repeated notices stop, and its channels get a notice."""
    incidents = _incidents(request)
    body = await read_json(request, _acknowledge_decoder)
    before = await state_before(incidents.get(caller.environment, incident_id), _acknowledgement)
    after = await incidents.acknowledge(caller.environment, incident_id, body.by)
    audit_change(request, before=before, after=_acknowledgement(after))
    return details_to_json(after)


@router.post(
    "/{incident_id}/notes",
    status_code=201,
    responses=problem_responses(UnknownIncident),
    openapi_extra=request_body_schema(NoteBody),
)
async def add_incident_note(request: Request, caller: OperateAccess, incident_id: uuid.UUID) -> Response:
    """Add a note to an incident."""
    incidents = _incidents(request)
    body = await read_json(request, _note_decoder)
    note = await incidents.add_note(caller.environment, incident_id, body.author, body.text)
    audit_change(request, after=note_to_json(note))
    response = json_response(note_to_json(note))
    response.status_code = 201
    return response


@router.get(
    "/{incident_id}/chart.png",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}, **problem_responses(UnknownIncident, NoChart)},
)
async def get_incident_chart(request: Request, caller: ReadAccess, incident_id: uuid.UUID) -> Response:
    """Return a picture of the moment: the value around the opening, with the threshold."""
    chart = await _incidents(request).read_chart(caller.environment, incident_id)
    return Response(chart, media_type="image/png")


def _incidents(request: Request) -> AlertIncidents:
    return get_services(request).alert_incidents


def _acknowledgement(details: IncidentDetails) -> dict[str, object]:
    return {"state": details.incident.state, "acknowledgedBy": details.incident.acknowledged_by}


def incident_to_json(incident: IncidentRecord) -> dict[str, object]:
    """Return the JSON of an incident with its first queues."""
    rule = msgspec.json.decode(incident.rule, type=dict[str, object])
    return {
        "id": str(incident.id),
        "state": incident.state,
        "rule": rule.get("name"),
        "ruleType": rule.get("type"),
        "severity": incident.severity,
        "openedAt": iso(incident.opened_at),
        "acknowledgedAt": iso_or_none(incident.acknowledged_at),
        "acknowledgedBy": incident.acknowledged_by,
        "resolvedAt": iso_or_none(incident.resolved_at),
        "resolution": incident.resolution,
        "notifiedAt": iso_or_none(incident.notified_at),
        "silenced": incident.silenced,
        "inhibitedBy": None if incident.inhibited_by is None else str(incident.inhibited_by),
        "cause": None if incident.cause is None else msgspec.json.decode(incident.cause),
        "chart": f"/api/v1/incidents/{incident.id}/chart.png" if incident.has_chart else None,
        "queueCount": incident.queue_count,
        "firingCount": incident.firing_count,
        "queues": [_queue_to_json(queue) for queue in _queues_decoder.decode(incident.queues)],
    }


def details_to_json(details: IncidentDetails) -> dict[str, object]:
    """Return the JSON of an incident with its rule, all queues, notes and notices."""
    return {
        **incident_to_json(details.incident),
        "ruleId": None if details.incident.rule_id is None else str(details.incident.rule_id),
        "ruleDefinition": msgspec.json.decode(details.incident.rule),
        "notes": [note_to_json(note) for note in details.notes],
        "notices": [notice_to_json(notice) for notice in details.notices],
    }


def note_to_json(note: IncidentNote) -> dict[str, object]:
    """Return the JSON of a note."""
    return {"at": iso(note.at), "author": note.author, "text": note.note}


def _queue_to_json(queue: StoredQueue) -> dict[str, object]:
    return {
        "queue": queue.queue,
        "firedAt": iso(queue.fired_at),
        "resolvedAt": iso_or_none(queue.resolved_at),
        "value": queue.value,
        "threshold": queue.threshold,
        "summary": queue.summary,
        "notifiedAt": iso_or_none(queue.notified_at),
    }
