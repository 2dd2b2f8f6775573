"""Routes that create, list, rotate and revoke the tokens of the caller's environment."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from penstock.access.token_document import issued_token_to_json, token_to_json
from penstock.access.token_service import (
    DEFAULT_OVERLAP_S,
    MAX_LIFETIME_S,
    MAX_NAME_LENGTH,
    MAX_OVERLAP_S,
    AccessTokens,
    NewToken,
    TokenExists,
    UnknownToken,
    may_change,
)
from penstock.api.access import Requires
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import Limit, Offset, Text, refuse_unknown_parameters
from penstock.api.http.request_parsing import as_utc, read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.body_error_text import NAME_PATTERN
from penstock.caller import AccessScope, Caller
from penstock.errors import InvalidRequest, WrongState

router = APIRouter(
    prefix="/api/v1",
    tags=["access"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

TokenAccess = Annotated[Caller, Depends(Requires(AccessScope.ADMIN, checks_names=True))]
"""A caller that is limited to queues or groups creates and changes tokens with such limits only."""

WithRevoked = Annotated[bool, Query(description="also list revoked tokens")]

# `AccessTokens` refuses other values, because its messages say what to send instead.
Lifetime = Annotated[
    float, msgspec.Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": MAX_LIFETIME_S})
]
Overlap = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MAX_OVERLAP_S})]


class TokenBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A new token. Without patterns it allows its scopes in all queues and groups."""

    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, min_length=1, max_length=MAX_NAME_LENGTH)]
    scopes: list[str]
    queues: list[str] | None = None
    groups: list[str] | None = None
    platform_admin: bool = False
    expires_at: datetime | None = None
    expires_in_s: Lifetime | None = None
    quotas: dict[str, int | None] = {}


class RotationBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """How long the previous secrets of a rotated token still work, in seconds."""

    overlap_s: Overlap = DEFAULT_OVERLAP_S


_token_decoder = msgspec.json.Decoder(TokenBody)
_rotation_decoder = msgspec.json.Decoder(RotationBody)


@router.get("/tokens")
async def list_tokens(
    request: Request,
    caller: TokenAccess,
    name: Text = None,
    revoked: WithRevoked = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> dict[str, object]:
    """List the tokens of the environment by name, without their secrets.

    `changeable` says whether the caller may rotate and revoke the token: it allows no more than the caller.
    """
    tokens = await _tokens(request).list_tokens(
        caller.environment, name=name, with_revoked=revoked, limit=limit, offset=offset
    )
    pagination = {"limit": limit, "offset": offset}
    listed = [{**token_to_json(token), "changeable": may_change(caller, token)} for token in tokens]
    return {"tokens": listed, "pagination": pagination}


@router.post(
    "/tokens",
    status_code=201,
    responses=problem_responses(TokenExists),
    openapi_extra=request_body_schema(TokenBody),
)
async def create_token(request: Request, caller: TokenAccess) -> Response:
    """Create a token in the caller's environment, with no more rights than the caller has.

    `secret` is in this response only: Penstock stores its hash.
    """
    body = await read_json(request, _token_decoder)
    token = NewToken(
        name=body.name,
        scopes=body.scopes,
        queues=body.queues,
        groups=body.groups,
        is_platform_admin=body.platform_admin,
        expires_at=_parse_expiry(body.expires_at),
        expires_in_s=body.expires_in_s,
        quotas=body.quotas,
    )
    issued = await _tokens(request).create(caller, token)
    audit_change(request, after=token_to_json(issued.token), name=body.name)
    headers = {"Location": f"/api/v1/tokens/{issued.token.row.id}", "Cache-Control": "no-store"}
    response = json_response(issued_token_to_json(issued), headers)
    response.status_code = 201
    return response


@router.get("/tokens/{token_id}", responses=problem_responses(UnknownToken))
async def get_token(request: Request, caller: TokenAccess, token_id: uuid.UUID) -> dict[str, object]:
    """Show a token, also a revoked one, without its secrets."""
    return token_to_json(await _tokens(request).get(caller.environment, token_id))


@router.post(
    "/tokens/{token_id}/rotate",
    responses=problem_responses(UnknownToken, WrongState),
    openapi_extra=request_body_schema(RotationBody, required=False),
)
async def rotate_token(request: Request, caller: TokenAccess, token_id: uuid.UUID) -> Response:
    """Give a token a new secret, which is in this response only.

    The previous secrets work for another `overlapS` seconds, so that clients can change over.
    """
    body = await read_json(request, _rotation_decoder, RotationBody())
    before = await state_before(_tokens(request).get(caller.environment, token_id), token_to_json)
    issued = await _tokens(request).rotate(caller, token_id, body.overlap_s)
    after = token_to_json(issued.token)
    audit_change(request, before=before, after=after, name=issued.token.row.name)
    return json_response(issued_token_to_json(issued), {"Cache-Control": "no-store"})


@router.delete("/tokens/{token_id}", responses=problem_responses(UnknownToken))
async def revoke_token(request: Request, caller: TokenAccess, token_id: uuid.UUID) -> dict[str, object]:
    """End a token for good, on every broker within two seconds. Revoking it again changes nothing."""
    before = await state_before(_tokens(request).get(caller.environment, token_id), token_to_json)
    revoked = await _tokens(request).revoke(caller, token_id)
    after = token_to_json(revoked)
    audit_change(request, before=before, after=after, name=revoked.row.name)
    return after


def _parse_expiry(time: datetime | None) -> datetime | None:
    """Return the time in UTC. Raises InvalidRequest if it is not on the calendar there."""
    try:
        return None if time is None else as_utc(time)
    except ValueError as error:
        raise InvalidRequest(f"expiresAt is not valid: {error}", field="expiresAt") from None


def _tokens(request: Request) -> AccessTokens:
    return get_services(request).access_tokens
