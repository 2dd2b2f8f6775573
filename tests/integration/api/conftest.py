from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.broker.broker import Broker
from penstock.config import Settings
from tests.integration.api.calls import app_services
from tests.integration.api.conformance import Conformance
from tests.integration.databases import cloned_database
from tests.redis_databases import RedisDatabases
from tests.waiting import wait_until_async


def build_settings(home: Path, database_url: str, redis_url: str, clickhouse_url: str) -> Settings:
    key = base64.b64encode(bytes(range(32))).decode()
    return Settings(
        home=home,
        load_management=False,  # responses must not depend on the load of the machine
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        encryption_keys=f"k1:{key}",
    )


@pytest_asyncio.fixture
async def settings(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> Settings:
    return build_settings(tmp_path, database_url, redis_url, clickhouse_url)


@pytest_asyncio.fixture(scope="module")
async def shared_settings(
    postgres_url: str,
    administrator: asyncpg.Connection,
    template: str,
    redis_databases: RedisDatabases,
    clickhouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Settings]:
    """Settings of the application that all tests of a module share: see `shared_app`."""
    with redis_databases.reserve() as redis_url:
        async with cloned_database(administrator, postgres_url, template) as database_url:
            home = tmp_path_factory.mktemp("home")
            yield build_settings(home, database_url, redis_url, clickhouse_url)


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
