"""Routes of the console's session: show the caller, log in with a token, log out."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.access.authentication import CSRF_HEADER, HeaderFields, session_cookie
from penstock.access.people.roles import format_environment, role_in
from penstock.api.access import PUBLIC, header_fields
from penstock.api.audited_change import audit_subject
from penstock.api.http.client_address import client_address
from penstock.api.http.read_only_console import READ_ONLY, READING_ACCESS, only_reads
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.problems import problem_responses
from penstock.api.services import Services, get_services
from penstock.api.session_cookies import clear_session_cookie, set_session_cookie
from penstock.caller import ACCESS_SCOPE_NAMES, Caller
from penstock.errors import InvalidCsrfToken, TooManyLogins, Unauthorized, UnknownEnvironment

router = APIRouter(prefix="/api/v1/session", tags=["session"], dependencies=[PUBLIC])


class TokenLogin(msgspec.Struct, forbid_unknown_fields=True):
    """A login with a token."""

    token: str


_login_decoder = msgspec.json.Decoder(TokenLogin)


@router.get("", responses=problem_responses(UnknownEnvironment))
async def show_session(request: Request) -> Response:
    """Show the caller: subject, environment, role, scopes and the CSRF token of the session.

    `readOnly` tells that the caller uses a console that is read-only (`PENSTOCK_CONSOLE`); then `scopes` has
    no other than read and read:payload.

    Without credentials that are valid, `authenticated` is false and `login` says how to log in. The cookie of
    a session that has ended is deleted.
    """
    services = get_services(request)
    fields = header_fields(request)
    try:
        return JSONResponse(await _describe_caller(services, fields))
    except Unauthorized:
        if not session_cookie(fields):
            return JSONResponse(_describe_login(services))
    del fields[b"cookie"]
    try:
        response = JSONResponse(await _describe_caller(services, fields))
    except Unauthorized:
        response = JSONResponse(_describe_login(services))
    clear_session_cookie(request, response)
    return response


@router.post(
    "",
    status_code=201,
    responses=problem_responses(Unauthorized, TooManyLogins),
    openapi_extra=request_body_schema(TokenLogin),
)
async def log_in_with_token(request: Request) -> Response:
    """Log in with a token: a session that may do what the token may, until the token ends.

    The response sets the session's cookie and has its CSRF token. A session that the browser had ends.
    """
    services = get_services(request)
    services.login_limits.check(client_address(request))
    login = await read_json(request, _login_decoder)
    fields = header_fields(request)
    caller = await services.authentication.log_in_with_token(login.token.strip())
    request.state.caller = caller
    new_session = await services.sessions.create_for_token(caller)
    if previous_cookie := session_cookie(fields):
        await services.sessions.end(previous_cookie)
    is_read_only = services.settings.console == READ_ONLY
    description = _describe_authenticated(services, caller, new_session.session.csrf_token, is_read_only)
    response = JSONResponse(description, 201)
    set_session_cookie(request, response, new_session)
    return response


@router.delete("", status_code=204, responses=problem_responses(InvalidCsrfToken))
async def log_out(request: Request) -> Response:
    """Log out: the session ends on every broker, and its cookie is deleted."""
    services = get_services(request)
    fields = header_fields(request)
    session = await services.authentication.find_session(fields)
    if session is not None:
        audit_subject(request, session.subject)
        session.check_csrf_token(fields.get(CSRF_HEADER, b"").decode("latin-1"))
        await services.sessions.end(session_cookie(fields))
    response = Response(status_code=204)
    clear_session_cookie(request, response)
    return response


async def _describe_caller(services: Services, fields: HeaderFields) -> dict[str, Any]:
    authentication = services.authentication
    caller = await authentication.authenticate(fields, is_unsafe=False)
    person = await authentication.find_person(fields)
    session = await authentication.find_session(fields)
    csrf_token = session.csrf_token if session else None
    is_read_only = only_reads(services.settings, fields)
    description = _describe_authenticated(services, caller, csrf_token, is_read_only)
    if person is not None:
        environments = map(format_environment, authentication.environments_of(caller, person))
        role = role_in(person.roles, caller.environment)
        description |= {"name": person.name, "role": role, "environments": list(environments)}
    return description


def _describe_authenticated(
    services: Services, caller: Caller, csrf_token: str | None, is_read_only: bool
) -> dict[str, Any]:
    access = caller.access & READING_ACCESS if is_read_only else caller.access
    environments = services.authentication.environments_of(caller, None)
    return _describe_login(services) | {
        "authenticated": True,
        "subject": caller.subject,
        "name": caller.subject.partition(":")[2] or caller.subject,
        "environment": format_environment(caller.environment),
        "environments": [format_environment(environment) for environment in environments],
        "scopes": [name for scope, name in ACCESS_SCOPE_NAMES.items() if scope in access],
        "readOnly": is_read_only,
        "platformAdministrator": caller.is_platform_admin,
        "csrfToken": csrf_token,
    }


def _describe_login(services: Services) -> dict[str, Any]:
    """What a caller without credentials gets: how to log in."""
    provider = services.identity_provider
    return {
        "authenticated": False,
        "subject": None,
        "name": None,
        "environment": None,
        "environments": [],
        "role": None,
        "scopes": [],
        "readOnly": services.settings.console == READ_ONLY,
        "platformAdministrator": False,
        "csrfToken": None,
        "login": {"oidc": provider.login_name if provider.login else None, "token": True},
    }
