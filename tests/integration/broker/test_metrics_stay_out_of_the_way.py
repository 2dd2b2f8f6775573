"""Queue operations with Redis away, silent or slow: as fast as ever, and what is lost is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.broker import Broker
from penstock.broker.self_metrics.queue_metrics import QueueMetrics
from penstock.durable import log
from penstock.errors import DatabaseUnavailable
from penstock.streams.emitter import Emitter
from tests.integration.broker.brokers import NOBODY, Brokers, ack, payloads, pop, push
from tests.waiting import wait_until_async


@asynccontextmanager
async def silent_redis() -> AsyncIterator[str]:
    """Takes connections and never says a word."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"redis://127.0.0.1:{port}/0"


async def one_round(broker: Broker, n: int) -> float:
    started = time.perf_counter()
    await push(broker, str(n))
    popped = await pop(broker)
    assert payloads(popped) == [str(n)]
    assert all(result.success for result in await ack(broker, popped))
    return time.perf_counter() - started


async def typical_s(broker: Broker) -> float:
    return sorted([await one_round(broker, n) for n in range(60)])[30]


async def failing(emitter: Emitter) -> None:
    async def noticed() -> bool:
        return emitter.pending > 0

    await wait_until_async(noticed, 10, "metric events wait")


async def test_without_redis_operations_work_as_fast_as_without_metrics(brokers: Brokers) -> None:
    plain = await typical_s(await brokers.start())
    async with silent_redis() as silent:
        for url in (NOBODY, silent):
            emitter = Emitter(url, buffer=1_000)
            emitter.start()
            took = await typical_s(await brokers.start(emitter=emitter))
            await failing(emitter)
            assert took < 3 * plain + 0.01, (url, took, plain)
            await emitter.stop(timeout_s=0.1)


async def test_what_finds_no_room_is_dropped_and_counted(brokers: Brokers) -> None:
    emitter = Emitter(NOBODY, buffer=3)
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
async def test_gauges_that_cannot_be_read_fail_no_operation_and_are_read_later(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    emitter = Emitter(NOBODY, buffer=100)
    broker = await brokers.start(emitter=emitter)
    asked = 0
    real = log.gauges

    async def gauges(*args: object) -> list[object]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise error
        return await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "gauges", gauges)
    await one_round(broker, 1)

    async def tried() -> bool:
        return asked >= 1

    await wait_until_async(tried, 10, "the gauges are asked for")
    await one_round(broker, 2)

    async def asked_again() -> bool:
        return asked >= 2 and emitter.pending > 0

    await wait_until_async(asked_again, 10, "the gauges are read")


async def test_metrics_may_be_started_and_stopped_twice(brokers: Brokers) -> None:
    await brokers.start()
    _, metrics, _ = brokers.running[-1]
    assert isinstance(metrics, QueueMetrics)
    await metrics.start()
    await metrics.stop()
    await metrics.stop()
