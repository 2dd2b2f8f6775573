"""One broker on a real socket and a real PostgreSQL for all tests of the client, and a queue for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from penstock.client import Client
from tests.integration.client.served import QUICK, serving
from tests.integration.databases import new_database


@pytest_asyncio.fixture(scope="session")
async def broker_url(postgres_url: str, template: str) -> AsyncIterator[str]:
    async with new_database(postgres_url, template) as database, serving(database) as url:
        yield url


@pytest_asyncio.fixture
async def client(broker_url: str) -> AsyncIterator[Client]:
    async with Client(broker_url, QUICK) as opened:
        yield opened


@pytest.fixture
def queue() -> str:
    return f"client-{uuid4().hex[:8]}"
