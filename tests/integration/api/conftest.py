from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest_asyncio
from fastapi import FastAPI

from penstock.api.app import create_app
from penstock.config import Settings
from tests.waiting import wait_until_async


@pytest_asyncio.fixture
async def settings(database_url: str, redis_url: str, clickhouse_url: str, tmp_path: Path) -> Settings:
    key = base64.b64encode(bytes(range(32))).decode()
    return Settings(
        home=tmp_path,
        load_management=False,  # what a route answers must not depend on how busy the machine is
        postgres_url=database_url,
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        encryption_keys=f"k1:{key}",
    )


@pytest_asyncio.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    made = create_app(settings)
    async with made.router.lifespan_context(made):
        yield made


@pytest_asyncio.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """The application on real servers, without a socket in between."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as opened:
        yield opened


@pytest_asyncio.fixture
async def parked(app: FastAPI) -> Callable[[int], Awaitable[None]]:
    """Waits until so many pops are parked."""
    waiters = app.state.services.broker.parked_pops

    async def wait(count: int) -> None:
        async def enough() -> bool:
            return waiters.count >= count

        await wait_until_async(enough, 10, f"{count} pops are parked")

    return wait
