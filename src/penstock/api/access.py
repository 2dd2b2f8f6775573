"""Declare who may call each route.

A route takes its caller as a parameter whose type names the access it requires: `caller: ReadAccess`. The
application refuses to start with a route that declares nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from penstock.access.authentication import ENVIRONMENT_HEADER, bearer_secret
from penstock.api.audited_change import audit_change, audit_subject
from penstock.api.http.origin_check import changes_something
from penstock.api.http.parameters import query_names
from penstock.api.http.read_only_console import check_console_access
from penstock.api.services import get_services
from penstock.caller import ACCESS_SCOPE_NAMES, LOCAL_CALLER, AccessScope, Caller
from penstock.errors import Forbidden, InvalidCsrfToken, PenstockError, Unauthorized, UnknownEnvironment
from penstock.model import DEFAULT_SCOPE

CHANNEL_HEADER = "X-Broker-Channel-Token"
CONSUMER_HEADER = "X-Broker-Consumer-Token"
NO_ACCESS = AccessScope(0)
"""The requirement of a public route."""

OWN_ENVIRONMENT = "-"
"""Stands in a path for the caller's environment; no environment has this name."""

_QUEUE_PARAMETERS = ("queue", "channelId")
_GROUP_PARAMETERS = ("group", "consumerId", "consumerGroup")
_GUARDS_GROUPS = AccessScope.CONSUME | AccessScope.OPERATE
"""Callers that are limited to consumer groups may use these only with a group of theirs."""


def check_access(caller: Caller, access: AccessScope) -> None:
    """Raise Forbidden unless the caller has this access."""
    if access not in caller.access:
        missing_access = access & ~caller.access
        missing = ", ".join(name for scope, name in ACCESS_SCOPE_NAMES.items() if scope in missing_access)
        raise Forbidden(f"The caller needs the scope {missing}. Use a token that has it.", scope=missing)


def check_queue(caller: Caller, queue: str | None) -> None:
    """Raise Forbidden unless the caller may use this queue; None stands for all queues."""
    if caller.queues is None or (queue is not None and caller.queues.matches(queue)):
        return
    raise Forbidden(
        f"The token is limited to the queues {caller.queues}. "
        + ("Name one of them: this request is for all queues." if queue is None else f"{queue!r} is no such.")
    )


def check_group(caller: Caller, group: str | None) -> None:
    """Raise Forbidden unless the caller may use this consumer group; None stands for all groups."""
    if caller.groups is None or (group is not None and caller.groups.matches(group)):
        return
    raise Forbidden(
        f"The token is limited to the consumer groups {caller.groups}. "
        + ("Name one of them: this request is for all." if group is None else f"{group!r} is no such.")
    )


def check_environment(caller: Caller, environment: str) -> None:
    """Raise UnknownEnvironment unless this is the name of the caller's environment, or stands for it."""
    if environment not in (caller.environment.environment, OWN_ENVIRONMENT):
        raise UnknownEnvironment(
            f"Environment {environment!r} does not exist. Yours is {caller.environment.environment!r}.",
            environment=environment,
        )


class Requires:
    """A dependency that authenticates the caller and checks its access.

    With `checks_names` the route itself checks the queues and groups that its body or an id names. Requests
    of administrators are not counted by quotas, because they may raise them.
    """

    def __init__(self, access: AccessScope, *, checks_names: bool = False, has_quota: bool = True) -> None:
        self.access = access
        self._checks_names = checks_names
        self._has_quota = has_quota and AccessScope.ADMIN not in access

    async def __call__(self, request: Request) -> Caller:
        caller = await authenticate(request)
        if self._has_quota:
            check_quotas(request, caller)
        check_access(caller, self.access)
        check_console_access(get_services(request).settings, header_fields(request), self.access)
        if not self._checks_names:
            _check_names(caller, self.access, _declared_parameters(request))
        return caller


def _check_names(caller: Caller, access: AccessScope, parameters: Mapping[str, str]) -> None:
    if caller.queues is not None:
        check_queue(caller, _first(parameters, _QUEUE_PARAMETERS))
    if caller.groups is not None:
        group = _first(parameters, _GROUP_PARAMETERS)
        if group is not None or access & _GUARDS_GROUPS:
            check_group(caller, group)


def _declared_parameters(request: Request) -> dict[str, str]:
    """The path and query parameters that the route has. It ignores others, so they may not name a queue."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    declared = query_names(route.dependant)
    query = {name: value for name, value in request.query_params.items() if name in declared}
    return {**query, **request.path_params}


def _first(parameters: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((parameters[name] for name in names if name in parameters), None)


async def authenticate(request: Request) -> Caller:
    """The caller of a request. Raises Unauthorized. Error handlers and the audit log read `state.caller`."""
    fields = header_fields(request)
    path = request.scope["path"].encode(errors="surrogateescape")
    is_unsafe = changes_something(request.method.encode(), path)
    authentication = get_services(request).authentication
    try:
        caller = await authentication.authenticate(fields, is_unsafe=is_unsafe)
    except InvalidCsrfToken:
        if session := await authentication.find_session(fields):
            audit_subject(request, session.subject)
        raise
    except UnknownEnvironment:
        selected = fields.pop(ENVIRONMENT_HEADER, b"").decode("latin-1")
        audit_change(request, selectedEnvironment=selected)
        # The audit log reads this: the caller in its own environment, if it has one.
        with suppress(PenstockError):
            request.state.denied_caller = await authentication.authenticate(fields, is_unsafe=is_unsafe)
        raise
    request.state.caller = caller
    return caller


def header_fields(request: Request) -> dict[bytes, bytes]:
    """The headers of a request, by their names in lower case."""
    return {name.lower(): value for name, value in request.scope["headers"]}


def check_quotas(request: Request, caller: Caller) -> None:
    """Count a request of the framework. Its bytes are counted later. Raises QuotaExceeded."""
    if not caller.has_known_quotas:
        get_services(request).quotas.attach(caller)
    if caller.quotas is not None:
        caller.quotas.admit_request(0, getattr(request.state, "quota_connection", None))


class RequiresConsumerTokens(Requires):
    """The same for routes of a webhook broker: a queue and a group have a token each, in two headers."""

    async def __call__(self, request: Request) -> Caller:
        headers = request.headers
        if CHANNEL_HEADER not in headers and CONSUMER_HEADER not in headers:
            return await super().__call__(request)
        channel_caller = request.state.caller = _header_caller(request, CHANNEL_HEADER)
        consumer_caller = _header_caller(request, CONSUMER_HEADER)
        if channel_caller.environment != consumer_caller.environment:
            raise Forbidden(f"The tokens in {CHANNEL_HEADER} and {CONSUMER_HEADER} are of two environments.")
        for caller in (channel_caller, consumer_caller):
            check_access(caller, self.access)
        check_queue(channel_caller, request.path_params["channelId"])
        check_group(consumer_caller, request.path_params["consumerId"])
        check_quotas(request, channel_caller)
        return channel_caller


def _header_caller(request: Request, header: str) -> Caller:
    secret = request.headers.get(header)
    if not secret:
        raise Unauthorized(f"The request has no token in the header {header}.", challenge=header)
    return get_services(request).authentication.find_token(secret)


class RequiresMetricsToken(Requires):
    """The same for /metrics, which also takes the token of the settings. With it, no caller is local."""

    async def __call__(self, request: Request) -> Caller:
        token = get_services(request).settings.metrics_token
        authorization = request.headers.get("Authorization", "")
        if token and compare_digest(bearer_secret(authorization.encode()).encode(), token.encode()):
            return METRICS_CALLER
        caller = await super().__call__(request)
        if token and caller.subject == LOCAL_CALLER.subject:
            raise Unauthorized(
                "The request has no token. Send the one of PENSTOCK_METRICS_TOKEN as Authorization: Bearer."
            )
        return caller


class RequiresPlatformAdmin(Requires):
    """The same for routes that concern all environments."""

    async def __call__(self, request: Request) -> Caller:
        caller = await super().__call__(request)
        if not caller.is_platform_admin:
            raise Forbidden(
                "Only a platform administrator may do this. Create a token for one on the broker's machine: "
                "penstock tokens create --admin."
            )
        return caller


PLATFORM_ADMIN_ONLY = {"x-platform-administrator": True}
"""What the OpenAPI document says of the operations that platform administrators alone may call."""

METRICS_CALLER = Caller(DEFAULT_SCOPE, AccessScope.READ, "metrics-token", is_platform_admin=True)
"""The sender of requests with the token for /metrics. It reads the metrics of all environments."""

ReadAccess = Annotated[Caller, Depends(Requires(AccessScope.READ))]
NamedReadAccess = Annotated[Caller, Depends(Requires(AccessScope.READ, checks_names=True))]
"""For lists of what a limited caller may see, and for requests whose parameters name the queue otherwise."""
ProduceAccess = Annotated[Caller, Depends(Requires(AccessScope.PRODUCE))]
ConsumeAccess = Annotated[Caller, Depends(Requires(AccessScope.CONSUME))]
LeaseAccess = Annotated[Caller, Depends(Requires(AccessScope.CONSUME, checks_names=True))]
"""For requests that name a lease: only the consumer that popped the message or task has it."""
OperateAccess = Annotated[Caller, Depends(Requires(AccessScope.OPERATE))]
NamedOperateAccess = Annotated[Caller, Depends(Requires(AccessScope.OPERATE, checks_names=True))]
"""For requests whose body names the queue and the group. The route checks them."""
ConfigureAccess = Annotated[Caller, Depends(Requires(AccessScope.CONFIGURE))]
NamedConfigureAccess = Annotated[Caller, Depends(Requires(AccessScope.CONFIGURE, checks_names=True))]
AdminAccess = Annotated[Caller, Depends(Requires(AccessScope.ADMIN))]
PlatformAdminAccess = Annotated[Caller, Depends(RequiresPlatformAdmin(AccessScope.ADMIN))]
PlatformReadAccess = Annotated[Caller, Depends(RequiresPlatformAdmin(AccessScope.READ))]
"""For figures of all environments together, such as the health of broker processes."""
MetricsAccess = Annotated[Caller, Depends(RequiresMetricsToken(AccessScope.READ))]
ConsumerTokensAccess = Annotated[Caller, Depends(RequiresConsumerTokens(AccessScope.OPERATE))]


class Public:
    """A dependency that declares a route to be open to all."""

    access = NO_ACCESS

    async def __call__(self) -> None:
        return None


PUBLIC = Depends(Public())

Endpoint = Callable[[Request], Awaitable[Response]]


def hot_endpoint(endpoint: Callable[[Request, Caller], Awaitable[Response]], access: AccessScope) -> Endpoint:
    """An endpoint for Starlette that authenticates the caller, checks its access and passes it on."""

    async def call(request: Request) -> Response:
        caller = await authenticate(request)
        check_quotas(request, caller)
        check_access(caller, access)
        check_console_access(get_services(request).settings, header_fields(request), access)
        return await endpoint(request, caller)

    call.access = access  # type: ignore[attr-defined]
    return call


def check_declarations(
    app: FastAPI, routers: Sequence[APIRouter], public_paths: frozenset[str]
) -> dict[tuple[str, str], AccessScope]:
    """Return the access that each method and path requires.

    Raises RuntimeError if a route neither declares its access nor is one of the public paths.
    """
    own_routes = [route for route in app.routes if isinstance(route, Route | Mount)]
    if len(app.routes) != len(own_routes) + len(routers):
        raise RuntimeError("The application has a router whose declarations are not checked.")
    declared: dict[tuple[str, str], AccessScope] = {}
    for route in (*own_routes, *(route for router in routers for route in router.routes)):
        assert isinstance(route, Route | Mount)
        access = required_access(route)
        if access is None:
            if route.path not in public_paths:
                raise RuntimeError(f"Route {route.path} does not declare who may call it; see api/access.py.")
            continue
        assert isinstance(route, Route)
        for method in route.methods or ():
            declared[method, route.path_format] = access
    return declared


def required_access(route: BaseRoute) -> AccessScope | None:
    """The access that a route requires; `NO_ACCESS` of a public one; None if it declares nothing."""
    if isinstance(route, APIRoute):
        return _declared_access(route.dependant)
    if isinstance(route, Route):
        return getattr(route.endpoint, "access", None)
    return None


def _declared_access(dependant: Dependant) -> AccessScope | None:
    if isinstance(dependant.call, Requires | Public):
        return dependant.call.access
    declared = (_declared_access(child) for child in dependant.dependencies)
    return next((access for access in declared if access is not None), None)
