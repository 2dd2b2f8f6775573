from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.durable.pool import Database
from tests.integration.databases import create_template, new_database


@pytest_asyncio.fixture(scope="session")
async def template(postgres_url: str) -> str:
    return await create_template(postgres_url)


@pytest_asyncio.fixture
async def database_url(postgres_url: str, template: str) -> AsyncIterator[str]:
    """The URL of a fresh migrated database."""
    async with new_database(postgres_url, template) as url:
        yield url


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, 5)
    yield opened
    await opened.close()
