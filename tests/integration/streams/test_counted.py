"""How far events were counted, from a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from penstock.definitions import QUEUE, MetricDefinition
from penstock.streams.positions import Position, write_positions
from penstock.streams.watermark import ON_THE_WAY_S, counted_until

NOW = 1_790_000_000.0


@pytest.fixture
def metric() -> MetricDefinition:
    return replace(QUEUE, name=f"test-{uuid4().hex[:8]}")


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[AsyncRedis]:
    async with AsyncRedis.from_url(redis_url) as opened:
        yield opened


async def until(client: AsyncRedis, metric: MetricDefinition) -> float | None:
    found = await counted_until(client, metric, lambda: NOW)
    return None if found is None else found + ON_THE_WAY_S


async def test_where_nothing_was_emitted_nothing_is_missing(
    client: AsyncRedis, metric: MetricDefinition
) -> None:
    assert await until(client, metric) == NOW


async def test_events_nobody_ever_counted_leave_it_open(client: AsyncRedis, metric: MetricDefinition) -> None:
    await client.xadd(metric.stream_keys[0], {"eq": 1})
    assert await until(client, metric) is None


async def test_it_is_where_the_slowest_stream_was_counted_to(
    client: AsyncRedis, redis_url: str, metric: MetricDefinition
) -> None:
    first, second = metric.stream_keys
    for key in (first, second):
        for seconds in (100, 50, 10):
            await client.xadd(key, {"eq": 1}, id=f"{int(NOW - seconds) * 1000}-0")
    newest = f"{int(NOW - 10) * 1000}-0"
    with Redis.from_url(redis_url) as moving:
        write_positions(moving, {first: Position(newest, 3)})
        assert await until(client, metric) is None
        write_positions(moving, {second: Position(f"{int(NOW - 50) * 1000}-0", 2)})
        assert await until(client, metric) == NOW - 50
        write_positions(moving, {second: Position(newest, 3)})
    assert await until(client, metric) == NOW
