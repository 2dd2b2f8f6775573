from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.broker.broker import Broker
from penstock.config import Settings
from tests.integration.api.calls import app_services
from tests.integration.api.conformance import Conformance
from tests.integration.api.server_settings import build_settings
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def settings(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> Settings:
    return build_settings(tmp_path, database_url, redis_url, clickhouse_url)


@pytest_asyncio.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    application = create_app(settings)
    async with application.router.lifespan_context(application):
        yield application


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application on real servers, without a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    conformance = Conformance()
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://localhost",
        headers={"Content-Type": "application/json"},
        event_hooks={"response": [conformance.check]},
    ) as http_client:
        yield http_client
    assert not conformance.violations, "\n".join(sorted(conformance.violations))


@pytest_asyncio.fixture
async def wait_for_parked_pops(app: FastAPI) -> Callable[[int], Awaitable[None]]:
    """Wait until at least this many pops are parked."""
    broker: Broker = app_services(app).broker

    async def wait(count: int) -> None:
        async def has_enough() -> bool:
            return broker.parked_pops.count >= count

        await wait_until_async(has_enough, 10, f"{count} pops are parked")

    return wait
