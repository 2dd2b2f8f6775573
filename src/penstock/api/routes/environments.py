"""Routes of environments: platform administrators create, list, limit and delete them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path
from starlette.requests import Request
from starlette.responses import Response

from penstock.access.environment_service import (
    EnvironmentDescription,
    Environments,
    unknown_environment,
)
from penstock.api.access import AdminAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import iso_or_none, json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.caller import Caller
from penstock.clock import iso
from penstock.errors import Forbidden, UnknownEnvironment, WrongState
from penstock.model import Scope

router = APIRouter(
    prefix="/api/v1/environments", tags=["access"], dependencies=[Depends(refuse_unknown_parameters)]
)

ENVIRONMENT_PATH = "/{organization}/{project}/{environment}"

Quotas = dict[str, int | None]
"""Limits by the name of the quota; null: no limit."""


class EnvironmentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new environment. Names have 1 to 63 letters, digits, dots, dashes and underscores."""

    organization: str
    project: str
    environment: str
    quotas: Quotas = {}


class QuotasBody(msgspec.Struct, forbid_unknown_fields=True):
    """The quotas of an environment; one that is left out has no limit."""

    quotas: Quotas


_environment_decoder = msgspec.json.Decoder(EnvironmentBody)
_quotas_decoder = msgspec.json.Decoder(QuotasBody)

PathName = Annotated[str, Path(min_length=1, max_length=255)]


def path_scope(organization: PathName, project: PathName, environment: PathName) -> Scope:
    return Scope(organization, project, environment)


PathScope = Annotated[Scope, Depends(path_scope)]


@router.get("")
async def list_environments(
    request: Request, caller: ReadAccess, limit: Limit = 100, offset: Offset = 0
) -> dict[str, object]:
    """List environments by name: all for platform administrators, their own for other callers."""
    environments = _environments(request)
    pagination = {"limit": limit, "offset": offset}
    if caller.is_platform_admin:
        page = await environments.list_page(limit=limit, offset=offset)
        descriptions, total = page.environments, page.total
    else:
        descriptions, total = [await environments.get(caller.environment)][offset : offset + limit], 1
    return {"environments": list(map(_to_json, descriptions)), "total": total, "pagination": pagination}


@router.post(
    "",
    status_code=201,
    responses=problem_responses(WrongState),
    openapi_extra=request_body_schema(EnvironmentBody),
)
async def create_environment(request: Request, caller: AdminAccess) -> Response:
    """Create an environment. Its tokens are created with the header `X-Penstock-Environment`."""
    body = await read_json(request, _environment_decoder)
    _require_platform_admin(caller)
    scope = Scope(body.organization, body.project, body.environment)
    description = await _environments(request).create(scope, body.quotas)
    audit_change(request, after=_to_json(description), **scope._asdict())
    response = json_response(
        _to_json(description), {"Location": f"/api/v1/environments/{'/'.join(description.scope)}"}
    )
    response.status_code = 201
    return response


@router.get(ENVIRONMENT_PATH, responses=problem_responses(UnknownEnvironment))
async def get_environment(request: Request, caller: ReadAccess, scope: PathScope) -> dict[str, object]:
    """Show an environment with its quotas; while it is being deleted, also how far that has come."""
    _check_visible(caller, scope)
    return _to_json(await _environments(request).get(scope))


@router.put(
    ENVIRONMENT_PATH,
    responses=problem_responses(UnknownEnvironment),
    openapi_extra=request_body_schema(QuotasBody),
)
async def set_environment_quotas(
    request: Request, caller: AdminAccess, scope: PathScope
) -> dict[str, object]:
    """Replace the quotas of an environment. They take effect on every broker within two seconds."""
    body = await read_json(request, _quotas_decoder)
    _check_visible(caller, scope)
    _require_platform_admin(caller)
    before = await state_before(_environments(request).get(scope), _to_json)
    after = _to_json(await _environments(request).set_quotas(scope, body.quotas))
    audit_change(request, before=before, after=after)
    return after


@router.delete(ENVIRONMENT_PATH, status_code=202, responses=problem_responses(UnknownEnvironment, WrongState))
async def delete_environment(request: Request, caller: AdminAccess, scope: PathScope) -> dict[str, object]:
    """Delete an environment with everything in it: queues, tasks, dead letters, alerts, tokens and metrics.

    Its requests are refused from now on. A broker deletes its data in the background; the environment can be
    shown until it has ended, and its name can be used again after that.
    """
    _check_visible(caller, scope)
    _require_platform_admin(caller)
    before = await state_before(_environments(request).get(scope), _to_json)
    after = _to_json(await _environments(request).delete(scope))
    audit_change(request, before=before, after=after)
    return after


def _check_visible(caller: Caller, scope: Scope) -> None:
    """Raise UnknownEnvironment unless the caller may know the environment."""
    if scope != caller.environment and not caller.is_platform_admin:
        raise unknown_environment("/".join(scope))


def _require_platform_admin(caller: Caller) -> None:
    if not caller.is_platform_admin:
        raise Forbidden(
            "Only platform administrators change environments. `penstock tokens create --admin` makes "
            "a token of one."
        )


def _to_json(description: EnvironmentDescription) -> dict[str, object]:
    deletion = None
    if description.deletion is not None:
        progress = {name: value for name, value in description.deletion.items() if name != "emptiedAtS"}
        deletion = {"requestedAt": iso_or_none(description.deletion_requested_at), **progress}
    return {
        "name": "/".join(description.scope),
        **description.scope._asdict(),
        "createdAt": iso(description.created_at),
        "queues": description.queues,
        "quotas": description.quotas,
        "deletion": deletion,
    }


def _environments(request: Request) -> Environments:
    return get_services(request).environments
