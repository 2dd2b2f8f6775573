"""One broker, on a socket and on PostgreSQL, for all tests of the client; one queue name per test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import pytest_asyncio

from penstock.client import Client
from tests.integration.client.broker_server import FAST_RETRIES, run_broker
from tests.integration.databases import new_database
from tests.redis_databases import RedisDatabases


@pytest_asyncio.fixture(scope="session")
async def broker_url(postgres_url: str, template: str) -> AsyncIterator[str]:
    async with new_database(postgres_url, template) as database, run_broker(database) as url:
        yield url


@pytest_asyncio.fixture
async def client(broker_url: str) -> AsyncIterator[Client]:
    async with Client(broker_url, FAST_RETRIES) as client:
        yield client


@pytest.fixture(scope="module")
def shared_redis_url(redis_databases: RedisDatabases) -> Iterator[str]:
    """A Redis database for the tests of one module."""
    with redis_databases.reserve() as url:
        yield url


@pytest.fixture
def queue() -> str:
    return f"client-{uuid4().hex[:8]}"
