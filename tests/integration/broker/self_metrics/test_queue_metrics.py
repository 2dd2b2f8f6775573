"""Queue operations while Redis is unreachable, silent or slow: no delay, and lost events are counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from penstock.broker.broker import Broker
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.durable.queue_gauges import GaugeReader, QueueGauge
from penstock.errors import DatabaseUnavailable
from penstock.streams.emitter import Emitter
from tests.integration.broker.brokers import UNREACHABLE_REDIS_URL, Brokers, ack, payloads, pop, push
from tests.waiting import wait_until_async


@asynccontextmanager
async def silent_redis() -> AsyncIterator[str]:
    """A server that accepts connections and never responds."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"redis://127.0.0.1:{port}/0"


async def push_pop_and_ack(broker: Broker, n: int) -> float:
    """Return how long the three operations took, in seconds."""
    started_s = time.perf_counter()
    await push(broker, str(n))
    popped = await pop(broker)
    assert payloads(popped) == [str(n)]
    assert all(result.success for result in await ack(broker, popped))
    return time.perf_counter() - started_s


async def median_s(broker: Broker) -> float:
    return sorted([await push_pop_and_ack(broker, n) for n in range(60)])[30]


async def wait_for_pending_events(emitter: Emitter) -> None:
    async def has_pending() -> bool:
        return emitter.pending > 0

    await wait_until_async(has_pending, 10, "metric events wait")


async def test_operations_are_as_fast_without_redis_as_without_metrics(brokers: Brokers) -> None:
    without_metrics_s = await median_s(await brokers.start())
    async with silent_redis() as silent_url:
        for url in (UNREACHABLE_REDIS_URL, silent_url):
            emitter = Emitter(url, buffer=1_000)
            emitter.start()
            with_metrics_s = await median_s(await brokers.start(emitter=emitter))
            await wait_for_pending_events(emitter)
            assert with_metrics_s < 3 * without_metrics_s + 0.01, (url, with_metrics_s, without_metrics_s)
            await emitter.stop(timeout_s=0.1)


async def test_events_beyond_the_buffer_are_dropped_and_counted(brokers: Brokers) -> None:
    emitter = Emitter(UNREACHABLE_REDIS_URL, buffer=3)
    emitter.start()
    broker = await brokers.start(emitter=emitter)
    for n in range(8):
        await push(broker, "x", queue=f"q{n}")
    _, metrics, _ = brokers.running[-1]
    await metrics.flush()
    assert emitter.pending <= 3
    assert emitter.dropped > 0
    await emitter.stop(timeout_s=0.1)
    assert emitter.pending == 0


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), RuntimeError("unexpected")])
async def test_gauges_that_cannot_be_read_do_not_fail_operations_and_are_read_later(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    emitter = Emitter(UNREACHABLE_REDIS_URL, buffer=100)
    broker = await brokers.start(emitter=emitter)
    calls = 0
    read_gauges = GaugeReader.of_queues

    async def fail_once(reader: GaugeReader, queue_ids: Sequence[int]) -> list[QueueGauge]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error
        return await read_gauges(reader, queue_ids)

    monkeypatch.setattr(GaugeReader, "of_queues", fail_once)
    await push_pop_and_ack(broker, 1)

    async def was_called() -> bool:
        return calls >= 1

    await wait_until_async(was_called, 10, "the metrics read the gauges")
    await push_pop_and_ack(broker, 2)

    async def was_called_again() -> bool:
        return calls >= 2 and emitter.pending > 0

    await wait_until_async(was_called_again, 10, "the gauges are read")


async def test_metrics_may_be_started_and_stopped_twice(brokers: Brokers) -> None:
    await brokers.start()
    _, metrics, _ = brokers.running[-1]
    assert isinstance(metrics, QueueMetrics)
    await metrics.start()
    await metrics.stop()
    await metrics.stop()
