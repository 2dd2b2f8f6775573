from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.broker.broker import Broker
from tests.integration.broker.brokers import Brokers


@pytest_asyncio.fixture
async def brokers(database_url: str) -> AsyncIterator[Brokers]:
    """Brokers on one database; those that a test starts are stopped after it."""
    made = Brokers(database_url)
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def broker(brokers: Brokers) -> Broker:
    return await brokers.start()
