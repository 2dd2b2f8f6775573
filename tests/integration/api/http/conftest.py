from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.config import Settings
from tests.integration.api.http.raw_connections import RunningServer, run_server


@pytest_asyncio.fixture
async def server(settings: Settings) -> AsyncIterator[RunningServer]:
    async with run_server(settings) as running_server:
        yield running_server
