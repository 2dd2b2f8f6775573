"""Routes that manage the channels of alerts, and show and repeat the delivery of their notices."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.alerts.delivery.channel_definitions import AnyChannel
from penstock.alerts.delivery.channel_secrets import ChannelKeyMissing
from penstock.alerts.delivery.channel_service import (
    AlertChannels,
    ChannelDescription,
    ChannelExists,
    ChannelInUse,
    NoticeFilter,
    NoticeRecord,
    UnknownChannel,
    UnknownNotice,
)
from penstock.api.access import ConfigureAccess, OperateAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, Text, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.clock import iso
from penstock.errors import Forbidden, Unauthorized, WrongState

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1",
    tags=["alerts"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

ChannelPath = Annotated[
    str, Path(max_length=100, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the channel")
]
NoticeState = Annotated[
    Literal["pending", "sent", "failed"] | None, Query(description="state of the delivery")
]

_fields_decoder = msgspec.json.Decoder(dict[str, object])


def _channel_body_schema() -> dict[str, object]:
    """The OpenAPI `requestBody` of a channel: one object per kind."""
    schemas, components = msgspec.json.schema_components([AnyChannel], ref_template="{name}")
    kinds = [components[option["$ref"]] for option in schemas[0]["anyOf"]]
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"anyOf": kinds}}}},
    }


_CHANGED_CHANNEL_BODY: dict[str, object] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
}


@router.get("/alert-channels")
async def list_alert_channels(request: Request, caller: ReadAccess) -> dict[str, object]:
    """List the channels, without their secrets."""
    channels = await _channels(request).list_channels(caller.environment)
    return {"channels": [channel_to_json(channel) for channel in channels]}


@router.post(
    "/alert-channels",
    status_code=201,
    responses=problem_responses(ChannelExists, ChannelKeyMissing),
    openapi_extra=_channel_body_schema(),
)
async def create_alert_channel(request: Request, caller: ConfigureAccess) -> Response:
    """Create a channel. Its secrets are encrypted and never returned."""
    channels = _channels(request)
    channel = await channels.create(caller.environment, await read_json(request, _fields_decoder))
    audit_change(request, after=channel_to_json(channel), channel=channel.name)
    response = json_response(channel_to_json(channel), {"Location": f"/api/v1/alert-channels/{channel.name}"})
    response.status_code = 201
    return response


@router.get("/alert-channels/{channel}", responses=problem_responses(UnknownChannel))
async def get_alert_channel(request: Request, caller: ReadAccess, channel: ChannelPath) -> dict[str, object]:
    """Show a channel, without its secrets."""
    return channel_to_json(await _channels(request).get(caller.environment, channel))


@router.put(
    "/alert-channels/{channel}",
    responses=problem_responses(UnknownChannel, ChannelKeyMissing),
    openapi_extra=_CHANGED_CHANNEL_BODY,
)
async def replace_alert_channel(
    request: Request, caller: ConfigureAccess, channel: ChannelPath
) -> dict[str, object]:
    """Replace a channel. Missing secret fields keep their values, unless the destination changes."""
    channels = _channels(request)
    fields = await read_json(request, _fields_decoder)
    before = await state_before(channels.get(caller.environment, channel), channel_to_json)
    after = channel_to_json(await channels.replace(caller.environment, channel, fields))
    audit_change(request, before=before, after=after, fields=sorted(fields))  # a new secret shows here alone
    return after


@router.delete("/alert-channels/{channel}", responses=problem_responses(UnknownChannel, ChannelInUse))
async def delete_alert_channel(
    request: Request, caller: ConfigureAccess, channel: ChannelPath
) -> dict[str, object]:
    """Delete a channel with its notices. It must not be used by a rule."""
    before = await state_before(_channels(request).get(caller.environment, channel), channel_to_json)
    await _channels(request).delete(caller.environment, channel)
    audit_change(request, before=before)
    return {"deleted": True, "channel": channel}


@router.post("/alert-channels/{channel}/test", status_code=202, responses=problem_responses(UnknownChannel))
async def send_test_notice(
    request: Request, caller: OperateAccess, channel: ChannelPath
) -> dict[str, object]:
    """Send a test notice, in one attempt. `GET /api/v1/alert-notices/{id}` has the result."""
    notice = notice_to_json(await _channels(request).send_test(caller.environment, channel))
    audit_change(request, after=notice)
    return notice


@router.get("/alert-notices")
async def list_alert_notices(
    request: Request,
    caller: ReadAccess,
    state: NoticeState = None,
    channel: Text = None,
    incident: uuid.UUID | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """List notices with the state of their delivery, the latest first. They are kept for 31 days."""
    notice_filter = NoticeFilter(state=state, channel=channel, incident_id=incident)
    notices = await _channels(request).list_notices(
        caller.environment, notice_filter, limit=limit, offset=offset
    )
    pagination = {"limit": limit, "offset": offset}
    return {"notices": [notice_to_json(notice) for notice in notices], "pagination": pagination}


@router.get("/alert-notices/{notice_id}", responses=problem_responses(UnknownNotice))
async def get_alert_notice(request: Request, caller: ReadAccess, notice_id: uuid.UUID) -> dict[str, object]:
    """Show a notice and the state of its delivery."""
    return notice_to_json(await _channels(request).get_notice(caller.environment, notice_id))


@router.post(
    "/alert-notices/{notice_id}/retry",
    status_code=202,
    responses=problem_responses(UnknownNotice, WrongState),
)
async def retry_alert_notice(
    request: Request, caller: OperateAccess, notice_id: uuid.UUID
) -> dict[str, object]:
    """Send a failed notice again, with the same id and a new series of attempts."""
    before = await state_before(_channels(request).get_notice(caller.environment, notice_id), notice_to_json)
    after = notice_to_json(await _channels(request).retry_notice(caller.environment, notice_id))
    audit_change(request, before=before, after=after)
    return after


def _channels(request: Request) -> AlertChannels:
    return get_services(request).alert_channels


def channel_to_json(channel: ChannelDescription) -> dict[str, object]:
    """Return the JSON of a channel: its settings, and only the names of its secrets."""
    return {
        "id": str(channel.id),
        "name": channel.name,
        "kind": channel.kind,
        "enabled": channel.enabled,
        "target": channel.settings.target,
        "settings": channel.settings.fields,
        "secretFields": channel.settings.secret_fields,
        "createdAt": iso(channel.created_at),
        "updatedAt": iso(channel.updated_at),
    }


def notice_to_json(notice: NoticeRecord) -> dict[str, object]:
    """Return the JSON of a notice and the state of its delivery."""
    return {
        "id": str(notice.id),
        "incidentId": str(notice.incident_id) if notice.incident_id else None,
        "transition": notice.transition,
        "channel": notice.channel,
        "kind": notice.kind,
        "rule": notice.rule,
        "state": notice.state,
        "attempts": notice.attempts,
        "nextAttemptAt": iso(notice.next_attempt_at) if notice.state == "pending" else None,
        "lastError": notice.last_error,
        "createdAt": iso(notice.created_at),
        "sentAt": iso_or_none(notice.sent_at),
    }
