"""`/metrics` with a token of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import httpx
import pytest

from penstock.access.token_service import NewToken
from penstock.api.app import create_app
from penstock.caller import LOCAL_CALLER
from penstock.config import Settings
from tests.integration.api.calls import app_services

METRICS_TOKEN = "a-token-for-prometheus"
Mode = Literal["none", "required"]
ConnectFunction = Callable[[Mode, str], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def connect(settings: Settings) -> ConnectFunction:
    """Run an application with this authentication and metrics token; yield a client of it."""

    @asynccontextmanager
    async def run(mode: Mode, metrics_token: str) -> AsyncIterator[httpx.AsyncClient]:
        updates = {"authentication": mode, "metrics_token": metrics_token}
        app = create_app(settings.model_copy(update=updates))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        ):
            tokens = app_services(app).access_tokens
            for scope in ("read", "produce"):
                issued = await tokens.create(LOCAL_CALLER, NewToken(name=f"{mode}-{scope}", scopes=[scope]))
                client.headers[f"x-token-{scope}"] = issued.secret
            yield client

    return run


async def status_of(client: httpx.AsyncClient, token: str | None, path: str = "/metrics") -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return (await client.get(path, headers=headers)).status_code


@pytest.mark.parametrize("mode", ["none", "required"])
async def test_metrics_take_their_token_or_one_with_read(connect: ConnectFunction, mode: Mode) -> None:
    async with connect(mode, METRICS_TOKEN) as client:
        for path in ("/metrics", "/metrics/prometheus"):
            assert await status_of(client, METRICS_TOKEN, path) == 200
            assert await status_of(client, client.headers["x-token-read"], path) == 200
            assert await status_of(client, client.headers["x-token-produce"], path) == 403
            assert await status_of(client, None, path) == 401
            assert await status_of(client, METRICS_TOKEN[:-1], path) == 401
            assert await status_of(client, "", path) == 401


async def test_the_token_opens_metrics_alone(connect: ConnectFunction) -> None:
    async with connect("required", METRICS_TOKEN) as client:
        assert await status_of(client, METRICS_TOKEN, "/api/v1/resources/queues") == 401


async def test_without_the_setting_metrics_are_like_other_routes(connect: ConnectFunction) -> None:
    async with connect("none", "") as client:
        assert await status_of(client, None) == 200
    async with connect("required", "") as client:
        assert await status_of(client, None) == 401
        assert await status_of(client, "") == 401
        assert await status_of(client, client.headers["x-token-read"]) == 200
