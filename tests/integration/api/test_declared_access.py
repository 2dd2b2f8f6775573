"""Every operation of the OpenAPI document admits the callers that it declares, and no other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from penstock.access.authentication import ENVIRONMENT_HEADER
from penstock.access.token_service import NewToken
from penstock.api.access import PUBLIC, check_declarations
from penstock.api.app import create_app
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.broker_tokens import (
    ALL_SCOPES,
    OTHER_ENVIRONMENT,
    GuardedBroker,
    bearer,
    create_other_environment,
    run_guarded_broker,
)
from tests.waiting import wait_until_async

PATH_VALUES = {"lease": "1.00000000-0000-0000-0000-000000000000", "hostname": "host", "worker": "0"}
PUBLIC_OPERATIONS = {
    **{("GET", path): 200 for path in ("/health", "/health/live", "/health/ready", "/api/v1/session")},
    ("POST", "/api/v1/session"): 400,  # it has no body
    ("DELETE", "/api/v1/session"): 204,
}
"""The status that each of them has without a token."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    scopes: tuple[str, ...]
    is_for_platform_admins: bool

    @property
    def url(self) -> str:
        return re.sub(r"\{(\w+)\}", lambda name: PATH_VALUES.get(name[1], "1"), self.path)

    async def send(self, client: httpx.AsyncClient, secret: str | None, **headers: str) -> httpx.Response:
        if secret is not None:
            headers |= bearer(secret)
        return await client.request(self.method, self.url, headers=headers)


def read_operations() -> Iterator[Operation]:
    document: dict[str, Any] = create_app(Settings()).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            scopes = operation["security"][0]["token"] if "security" in operation else []
            is_for_platform_admins = operation.get("x-platform-administrator", False)
            yield Operation(method.upper(), path, tuple(scopes), is_for_platform_admins)


OPERATIONS = sorted(read_operations(), key=lambda operation: (operation.path, operation.method))
GUARDED = [operation for operation in OPERATIONS if operation.scopes]


@pytest_asyncio.fixture
async def broker(settings: Settings, database: Database) -> AsyncIterator[GuardedBroker]:
    await create_other_environment(database)
    async with run_guarded_broker(settings) as guarded_broker:
        yield guarded_broker


@pytest_asyncio.fixture
async def client(broker: GuardedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client() as http_client:
        yield http_client


Statuses = dict[tuple[str, str], int]


async def statuses(client: httpx.AsyncClient, secret: str | None, **headers: str) -> Statuses:
    """The status of each guarded operation for this token."""
    return {
        (operation.method, operation.path): (await operation.send(client, secret, **headers)).status_code
        for operation in GUARDED
    }


def assert_all(status: int, observed: Statuses) -> None:
    assert {operation: other for operation, other in observed.items() if other != status} == {}


def test_all_operations_but_health_and_login_are_guarded() -> None:
    assert {(o.method, o.path) for o in OPERATIONS if not o.scopes} == PUBLIC_OPERATIONS.keys()
    assert len(GUARDED) > 100


async def test_no_token_is_401(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    assert_all(401, await statuses(client, None))


async def test_an_unknown_an_expired_and_a_revoked_token_are_401(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    assert_all(401, await statuses(client, "pk_" + "x" * 43))
    expired = await broker.create(NewToken(name="expired", scopes=ALL_SCOPES, expires_in_s=0.2))

    async def has_expired() -> bool:
        return (await client.get("/api/v1/status", headers=bearer(expired))).status_code == 401

    await wait_until_async(has_expired, 10, "the token expires")
    assert_all(401, await statuses(client, expired))


async def test_a_token_of_another_environment_is_404(
    broker: GuardedBroker, client: httpx.AsyncClient
) -> None:
    secret = await broker.secret(ALL_SCOPES, OTHER_ENVIRONMENT)
    selected = {ENVIRONMENT_HEADER.decode(): "/".join(DEFAULT_SCOPE)}
    assert_all(404, await statuses(client, secret, **selected))
    missing = {ENVIRONMENT_HEADER.decode(): "no/such/environment"}
    assert_all(404, await statuses(client, secret, **missing))


async def test_every_scope_but_the_right_one_is_403(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    for operation in GUARDED:
        for scope in operation.scopes:
            secret = await broker.secret([other for other in ALL_SCOPES if other != scope])
            response = await operation.send(client, secret)
            assert (response.status_code, response.json()["scope"]) == (403, scope), operation


async def test_the_declared_scopes_are_enough(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    token = NewToken(name="platform", scopes=ALL_SCOPES, is_platform_admin=True)
    platform_secret = await broker.create(token)
    for operation in GUARDED:
        response = await operation.send(client, await broker.secret(operation.scopes))
        if operation.is_for_platform_admins:
            assert (response.status_code, response.json()["code"]) == (403, "forbidden"), operation
            response = await operation.send(client, platform_secret)
        assert response.status_code not in (401, 403), (operation, response.text)


async def test_public_operations_need_no_token(broker: GuardedBroker, client: httpx.AsyncClient) -> None:
    for (method, path), status in PUBLIC_OPERATIONS.items():
        assert (await client.request(method, path)).status_code == status, (method, path)


def test_an_undeclared_route_is_refused() -> None:
    async def page(request: Request) -> Response:
        return Response()

    app = FastAPI(openapi_url=None)
    app.add_route("/page", page)
    with pytest.raises(RuntimeError, match="/page does not declare who may call it"):
        check_declarations(app, [], frozenset())
    assert check_declarations(app, [], frozenset({"/page"})) == {}


def test_an_undeclared_route_of_a_router_is_refused() -> None:
    router = APIRouter()
    app = FastAPI(openapi_url=None)

    @router.get("/declared", dependencies=[PUBLIC])
    @router.get("/forgotten")
    async def page() -> None:
        return None

    app.include_router(router)
    with pytest.raises(RuntimeError, match="a router whose declarations are not checked"):
        check_declarations(app, [], frozenset())
    with pytest.raises(RuntimeError, match="/forgotten does not declare who may call it"):
        check_declarations(app, [router], frozenset())
