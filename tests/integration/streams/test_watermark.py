"""The watermark of a metric, read from a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from penstock.definitions import QUEUE, MetricDefinition
from penstock.streams.positions import Position, write_positions
from penstock.streams.watermark import read_clock_lead_s, read_watermark

NOW = 1_790_000_000.0


@pytest.fixture
def metric() -> MetricDefinition:
    return replace(QUEUE, name=f"test-{uuid4().hex[:8]}")


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[AsyncRedis]:
    async with AsyncRedis.from_url(redis_url) as client:
        yield client


async def read_without_delay(client: AsyncRedis, metric: MetricDefinition) -> float | None:
    watermark = await read_watermark(client, metric, lambda: NOW)
    return None if watermark is None else watermark + metric.max_emit_delay_s


async def test_the_watermark_of_empty_streams_is_now(client: AsyncRedis, metric: MetricDefinition) -> None:
    assert await read_without_delay(client, metric) == NOW


async def test_events_that_were_never_counted_leave_no_watermark(
    client: AsyncRedis, metric: MetricDefinition
) -> None:
    await client.xadd(metric.stream_keys[0], {"eq": 1})
    assert await read_without_delay(client, metric) is None


async def test_the_watermark_is_that_of_the_slowest_stream(
    client: AsyncRedis, redis_url: str, metric: MetricDefinition
) -> None:
    first, second = metric.stream_keys
    for key in (first, second):
        for seconds in (100, 50, 10):
            await client.xadd(key, {"eq": 1}, id=f"{int(NOW - seconds) * 1000}-0")
    newest = f"{int(NOW - 10) * 1000}-0"
    with Redis.from_url(redis_url) as sync_client:
        write_positions(sync_client, {first: Position(newest, 3)})
        assert await read_without_delay(client, metric) is None
        write_positions(sync_client, {second: Position(f"{int(NOW - 50) * 1000}-0", 2)})
        # The first unread entry: every event before it is counted.
        assert await read_without_delay(client, metric) == NOW - 10
        write_positions(sync_client, {second: Position(newest, 3)})
    assert await read_without_delay(client, metric) == NOW


async def test_a_new_event_after_an_idle_time_does_not_move_the_watermark_back(
    client: AsyncRedis, redis_url: str, metric: MetricDefinition
) -> None:
    key = metric.stream_keys[0]
    counted = f"{int(NOW - 3_600) * 1000}-0"
    await client.xadd(key, {"eq": 1}, id=counted)
    with Redis.from_url(redis_url) as sync_client:
        write_positions(sync_client, {key: Position(counted, 1)})
    assert await read_without_delay(client, metric) == NOW
    await client.xadd(key, {"eq": 1}, id=f"{int(NOW - 1) * 1000}-0")
    assert await read_without_delay(client, metric) == NOW - 1


async def test_the_lead_of_the_clock_is_that_of_the_newest_event(
    client: AsyncRedis, metric: MetricDefinition
) -> None:
    first, second = metric.stream_keys

    async def read_lead_s() -> float:
        return await read_clock_lead_s(client, metric, lambda: NOW)

    assert await read_lead_s() == 0
    await client.xadd(first, {"eq": 1}, id=f"{int(NOW - 5) * 1000}-0")
    assert await read_lead_s() == 0
    await client.xadd(second, {"eq": 1}, id=f"{int(NOW + 65) * 1000}-0")
    await client.xtrim(second, maxlen=0)
    assert await read_lead_s() == 65
