"""Routes that manage silences."""

from __future__ import annotations

import uuid

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.alerts.incidents.silence_service import AlertSilences, SilenceDescription, UnknownSilence
from penstock.alerts.incidents.silences import Silence
from penstock.api.access import OperateAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.clock import iso
from penstock.errors import Forbidden, Unauthorized

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1/alert-silences",
    tags=["alerts"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

_fields_decoder = msgspec.json.Decoder(dict[str, object])


@router.get("")
async def list_alert_silences(
    request: Request, caller: ReadAccess, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """List silences, the latest first; `state` is `active`, `scheduled` or `ended`."""
    silences = await _silences(request).list_silences(caller.environment, limit=limit, offset=offset)
    pagination = {"limit": limit, "offset": offset}
    return {"silences": [silence_to_json(silence) for silence in silences], "pagination": pagination}


@router.post("", status_code=201, openapi_extra=request_body_schema(Silence))
async def create_alert_silence(request: Request, caller: OperateAccess) -> Response:
    """Create a silence."""
    silences = _silences(request)
    fields = await read_json(request, _fields_decoder)
    silence = await silences.create(caller.environment, fields)
    audit_change(request, after=silence_to_json(silence), silence_id=str(silence.id))
    response = json_response(silence_to_json(silence), {"Location": f"/api/v1/alert-silences/{silence.id}"})
    response.status_code = 201
    return response


@router.get("/{silence_id}", responses=problem_responses(UnknownSilence))
async def get_alert_silence(request: Request, caller: ReadAccess, silence_id: uuid.UUID) -> dict[str, object]:
    """Show a silence."""
    return silence_to_json(await _silences(request).get(caller.environment, silence_id))


@router.put(
    "/{silence_id}", responses=problem_responses(UnknownSilence), openapi_extra=request_body_schema(Silence)
)
async def replace_alert_silence(
    request: Request, caller: OperateAccess, silence_id: uuid.UUID
) -> dict[str, object]:
    """Replace a silence."""
    silences = _silences(request)
    fields = await read_json(request, _fields_decoder)
    before = await state_before(silences.get(caller.environment, silence_id), silence_to_json)
    after = silence_to_json(await silences.replace(caller.environment, silence_id, fields))
    audit_change(request, before=before, after=after)
    return after


@router.delete("/{silence_id}", responses=problem_responses(UnknownSilence))
async def delete_alert_silence(
    request: Request, caller: OperateAccess, silence_id: uuid.UUID
) -> dict[str, object]:
    """Delete a silence. Queues that still fire are notified at once."""
    before = await state_before(_silences(request).get(caller.environment, silence_id), silence_to_json)
    await _silences(request).delete(caller.environment, silence_id)
    audit_change(request, before=before)
    return {"deleted": True, "id": str(silence_id)}


def _silences(request: Request) -> AlertSilences:
    return get_services(request).alert_silences


def silence_to_json(description: SilenceDescription) -> dict[str, object]:
    """Return the JSON of a silence, with its id and state."""
    fields: dict[str, object] = msgspec.to_builtins(description.silence)
    created_at = iso(description.created_at)
    return {"id": str(description.id), "state": description.state, **fields, "createdAt": created_at}
