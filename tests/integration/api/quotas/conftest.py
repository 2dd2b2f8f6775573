from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio

from penstock.config import Settings
from tests.integration.api.http.raw_connections import run_server
from tests.integration.api.quotas.limited_broker import LimitedBroker


@pytest_asyncio.fixture
async def broker(settings: Settings) -> AsyncIterator[LimitedBroker]:
    async with run_server(settings) as server:
        yield LimitedBroker(server)


@pytest_asyncio.fixture
async def client(broker: LimitedBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with broker.client() as http_client:
        yield http_client
