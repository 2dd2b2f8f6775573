"""Fixtures: run queues in an environment per test, on the Valkey that all tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from penstock.model import Scope
from penstock.runqueue.queue import RunQueues


@pytest.fixture
def scope() -> Scope:
    return Scope(f"org-{uuid4().hex[:8]}", "shop", "production")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def queues(redis_url: str) -> AsyncIterator[RunQueues]:
    """Run queues without background tasks: the test sweeps."""
    run_queues = RunQueues(redis_url)
    yield run_queues
    await run_queues.stop()


@pytest.fixture
async def live(redis_url: str) -> AsyncIterator[RunQueues]:
    """Run queues with wake-ups and sweeps in the background."""
    run_queues = RunQueues(redis_url)
    await run_queues.start()
    yield run_queues
    await run_queues.stop()
