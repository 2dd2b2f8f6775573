"""Record calls in the audit log, after their status is known and before their response is sent.

Recorded are all calls that change something and are no data operations: routes with an unsafe method that
require operate, configure or admin, and logins. A route gets this by its declaration. Denied calls are
recorded as well. The entry has the id of the request, which the response carries.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

import msgspec
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.access.audit.audit_log import AuditEntry, AuditLog
from penstock.access.audit.redaction import clean_text, redact
from penstock.api import problems
from penstock.api.audited_change import AuditedChange
from penstock.api.http.client_address import client_address
from penstock.api.http.parameters import query_names
from penstock.caller import AccessScope, Caller
from penstock.errors import UnknownEnvironment
from penstock.log_format import request_ids

AUDITED_ACCESS = AccessScope.OPERATE | AccessScope.CONFIGURE | AccessScope.ADMIN
LOGIN_ROUTES = frozenset(
    {("POST", "/api/v1/session"), ("DELETE", "/api/v1/session"), ("GET", "/auth/callback")}
)
DENIED_STATUSES = (401, 403, 421)
INTERRUPTED_STATUS = 499
MAX_VALUE_LENGTH = 255
"""Characters of a parameter that an entry keeps."""
MAX_CHANGE_BYTES = 64 * 1024
"""JSON of a state before or after a call that an entry keeps."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def audited_calls(access: Mapping[tuple[str, str], AccessScope]) -> frozenset[tuple[str, str]]:
    """Return the methods and path templates that are recorded, of the access that routes declare."""
    return frozenset(
        (method, path)
        for (method, path), required in access.items()
        if (method, path) in LOGIN_ROUTES or (method not in _SAFE_METHODS and required & AUDITED_ACCESS)
    )


class AuditMiddleware:
    """Records the calls of an application."""

    def __init__(self, app: ASGIApp, calls: frozenset[tuple[str, str]], routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._calls = calls
        self._routes = [route for route in routes if isinstance(route, Route)]
        self._safe_paths = {path for method, path in calls if method in _SAFE_METHODS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (
            scope["method"] in _SAFE_METHODS and scope["path"] not in self._safe_paths
        ):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        response = _AuditedResponse(self, scope, send)
        try:
            await self._app(scope, receive, response.send)
        except asyncio.CancelledError:
            response.log_interruption()
            raise
        except Exception as error:
            if response.has_started or self.find_call(scope) is None:
                raise
            problem = problems.from_unexpected_error(error, scope["path"])
            await problem(scope, receive, response.send)

    def find_call(self, scope: Scope) -> tuple[Route, Mapping[str, object]] | None:
        """Return the route of a call that is recorded, and its path parameters; None of any other call."""
        route, parameters = scope.get("route"), scope.get("path_params", {})
        if route is None:  # a check of the head refused the call before it was routed
            for candidate in self._routes:
                match, child_scope = candidate.matches(scope)
                if match is Match.FULL:
                    route, parameters = candidate, child_scope["path_params"]
                    break
        if not isinstance(route, Route) or (scope["method"], route.path_format) not in self._calls:
            return None
        return route, parameters


class _AuditedResponse:
    """Passes on the response of a call. If the call is recorded, a problem gets the id of the request."""

    def __init__(self, middleware: AuditMiddleware, scope: Scope, send: Send) -> None:
        self._middleware = middleware
        self._scope = scope
        self._send = send
        self._problem_start: Message | None = None
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            await self._start(message)
        elif self._problem_start is not None:
            start, self._problem_start = self._problem_start, None
            problem = msgspec.json.decode(message["body"], type=dict[str, object])
            body = msgspec.json.encode({**problem, "requestId": _request_id()})
            MutableHeaders(scope=start)["Content-Length"] = str(len(body))
            await self._send(start)
            await self._send({**message, "body": body})
        else:
            await self._send(message)

    def log_interruption(self) -> None:
        """Log a call that was cancelled because the broker stops. It may have changed something."""
        call = self._middleware.find_call(self._scope)
        if call is not None and not self.has_started:
            entry = _to_entry(self._scope, *call, INTERRUPTED_STATUS)
            _audit_log(self._scope).log_entry(entry, "the broker stops during the call")

    async def _start(self, message: Message) -> None:
        call = self._middleware.find_call(self._scope)
        if call is None:
            await self._send(message)
            return
        await _audit_log(self._scope).record(_to_entry(self._scope, *call, message["status"]))
        if MutableHeaders(scope=message).get("Content-Type") == problems.MEDIA_TYPE:
            self._problem_start = message
        else:
            await self._send(message)


def _audit_log(scope: Scope) -> AuditLog:
    audit_log: AuditLog = scope["app"].state.services.audit_log
    return audit_log


def _request_id() -> str:
    """Return the id that `RequestIdMiddleware` gave the request."""
    ids = request_ids.get()
    assert ids is not None
    return ids.request_id


def _to_entry(scope: Scope, route: Route, parameters: Mapping[str, object], status: int) -> AuditEntry:
    connection = HTTPConnection(scope)
    state: Mapping[str, object] = scope["state"]
    caller = state.get("caller") or state.get("denied_caller")
    assert caller is None or isinstance(caller, Caller)
    change = state.get("audited_change")
    names: dict[str, object] = {**_query_values(connection, route), **parameters}
    before = after = None
    if isinstance(change, AuditedChange):
        names |= change.names
        if status < 400:
            before, after = _to_json(change.before), _to_json(change.after)
    is_failed_login = (scope["method"], route.path_format) in LOGIN_ROUTES and status >= 400
    may_use_environment = state.get("error_code") != UnknownEnvironment.code or (
        caller is not None and caller.is_platform_admin
    )
    return AuditEntry(
        environment=caller.environment if caller else None,
        subject=clean_text(caller.subject if caller else str(state.get("audited_subject", ""))),
        token_id=uuid.UUID(caller.token_id) if caller and caller.token_id else None,
        address=client_address(connection),
        action=f"{scope['method']} {route.path_format}",
        object=_to_json({name: _shorten(value) for name, value in names.items()}) or "{}",
        status=status,
        denied=is_failed_login or status in DENIED_STATUSES or not may_use_environment,
        before=before,
        after=after,
        request_id=clean_text(_request_id()),
    )


def _query_values(connection: HTTPConnection, route: Route) -> dict[str, object]:
    """Return the query parameters that the route has. Others may hold anything, also secrets."""
    known = query_names(route.dependant) if isinstance(route, APIRoute) else []
    return {name: value for name, value in connection.query_params.items() if name in known}


def _shorten(value: object) -> object:
    return value[:MAX_VALUE_LENGTH] if isinstance(value, str) else value


def _to_json(value: object) -> str | None:
    """Return redacted JSON; None for None. A value that is too large is replaced by its size."""
    if value is None:
        return None
    encoded = msgspec.json.encode(redact(msgspec.to_builtins(value, enc_hook=str)))
    if len(encoded) > MAX_CHANGE_BYTES:
        encoded = msgspec.json.encode({"omitted": f"{len(encoded)} bytes of JSON"})
    return encoded.decode()
