"""The route that creates queues and sets their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from penstock.api.access import NamedConfigureAccess, check_queue
from penstock.api.annotated_change import annotate_change, describe_options
from penstock.api.audited_change import audit_change
from penstock.api.http.request_parsing import MAX_NAME_LENGTH, check_name, read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.routes.queues import configuration_to_dict, read_configuration
from penstock.api.services import get_services
from penstock.body_error_text import describe_body_error
from penstock.broker.queues.queue_options import OPTIONS, suggest_name
from penstock.errors import InvalidRequest, WrongState

router = APIRouter(prefix="/api/v1", tags=["queues"])


class ConfigureBody(msgspec.Struct):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


_object_decoder = msgspec.json.Decoder(dict[str, Any])  # msgspec knows no object
_FIELDS = [field.name for field in msgspec.structs.fields(ConfigureBody)]


@router.post(
    "/configure", responses=problem_responses(WrongState), openapi_extra=request_body_schema(ConfigureBody)
)
async def configure(request: Request, caller: NamedConfigureAccess) -> Response:
    """Create a queue, or change its options. Options that are left out keep their value."""
    services = get_services(request)
    body = _parse_body(await read_json(request, _object_decoder))
    check_queue(caller, body.queue)
    before = await read_configuration(services, caller, body.queue)
    configured = await services.broker.queues.configure(
        caller.environment,
        body.queue,
        body.options or {},
        namespace=body.namespace,
        task=body.task,
        quotas=caller.quotas,
    )
    after = configuration_to_dict(services, configured.columns)
    audit_change(request, before=before, after=after, queue=body.queue)
    if text := describe_options(before and _flatten(before), _flatten(after)):
        await annotate_change(request, caller, "configure", text, queue=body.queue)
    return json_response(
        {
            "configured": True,
            "queue": body.queue,
            "queueId": str(configured.queue_id),
            "partitionId": None if configured.partition_id is None else str(configured.partition_id),
            **after,
        }
    )


def _flatten(configuration: Mapping[str, object]) -> dict[str, object]:
    """Return the namespace, the task and each option by its name."""
    options = configuration["options"]
    assert isinstance(options, Mapping)
    return {"namespace": configuration["namespace"], "task": configuration["task"], **options}


def _parse_body(fields: dict[str, object]) -> ConfigureBody:
    """Convert and check the body. Raises InvalidRequest with a hint at the name that was probably meant."""
    for name in fields:
        if name in OPTIONS:
            raise InvalidRequest(f"{name} is an option. Put it into options.", field=name)
        if name not in _FIELDS:
            raise InvalidRequest(f"Unknown field {name!r}{suggest_name(name, _FIELDS)}", field=name)
    try:
        body = msgspec.convert(fields, ConfigureBody)
    except msgspec.ValidationError as error:
        sentence, field = describe_body_error(error)
        raise InvalidRequest(sentence, field=field) from None
    check_name("queue", body.queue)
    for name, label in (("namespace", body.namespace), ("task", body.task)):
        if label and (len(label) > MAX_NAME_LENGTH or not label.isprintable()):
            raise InvalidRequest(
                f"{name} must have at most {MAX_NAME_LENGTH} printable characters.", field=name
            )
    return body
