from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from penstock.durable.pool import Database
from tests.integration.databases import administering, cloned_database, create_template


@pytest_asyncio.fixture(scope="session")
async def template(postgres_url: str) -> str:
    return await create_template(postgres_url)


@pytest_asyncio.fixture(scope="session")
async def administrator(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that creates and drops the databases of tests."""
    async with administering(postgres_url) as connection:
        yield connection


@pytest_asyncio.fixture
async def database_url(
    postgres_url: str, administrator: asyncpg.Connection, template: str
) -> AsyncIterator[str]:
    """The URL of a fresh migrated database."""
    async with cloned_database(administrator, postgres_url, template) as url:
        yield url


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, 5)
    yield opened
    await opened.close()
