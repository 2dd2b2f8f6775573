from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.broker.broker import Broker
from tests.integration.broker.brokers import Brokers


@pytest_asyncio.fixture
async def brokers(database_url: str) -> AsyncIterator[Brokers]:
    """Start brokers on one database; all of them stop after the test."""
    started = Brokers(database_url)
    yield started
    await started.stop()


@pytest_asyncio.fixture
async def broker(brokers: Brokers) -> Broker:
    return await brokers.start()
