from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.access.token_index import TokenIndex
from penstock.access.token_service import AccessTokens
from penstock.durable.pool import Database


@pytest_asyncio.fixture
async def index(database_url: str) -> AsyncIterator[TokenIndex]:
    """The tokens in the memory of a broker."""
    token_index = TokenIndex(database_url)
    await token_index.start()
    yield token_index
    await token_index.stop()


@pytest_asyncio.fixture
async def tokens(database: Database, index: TokenIndex) -> AccessTokens:
    return AccessTokens(database, index.refresh)
