"""Queue operations while Redis is unreachable, silent or slow: no delay, and lost events are counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, MessageLease
from penstock.broker.queues.pop import PopOptions
from penstock.broker.self_metrics.queue_metrics import QueueMetrics, QueueTally
from penstock.caller import LOCAL_CALLER
from penstock.durable.queue_gauges import GaugeReader, QueueGauge
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
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


def observe_counters(brokers: Brokers) -> Callable[[], Awaitable[Counter[str]]]:
    """Return a function that returns what the last started broker counted, over all queues and groups."""
    _, metrics, _ = brokers.running[-1]
    counters: Counter[str] = Counter()

    def observe(scope: Scope, queue: str, group: str, tally: QueueTally) -> None:
        counters.update(tally.counters)

    async def flush() -> Counter[str]:
        await metrics.flush()
        return counters

    metrics.observer = observe
    return flush


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


async def test_a_message_given_back_is_not_a_failed_attempt(brokers: Brokers) -> None:
    broker = await brokers.start()
    counters = observe_counters(brokers)
    await push(broker, "a")
    await ack(broker, await pop(broker), "retry")
    await ack(broker, await pop(broker), "failed")
    await ack(broker, await pop(broker))
    assert await counters() == {"eq": 1, "dq": 3, "rl": 1, "nk": 1, "ak": 1}


async def test_postgres_keeps_the_number_of_completed_messages_on_every_path(brokers: Brokers) -> None:
    broker = await brokers.start(max_response_bytes=1_000)
    counters = observe_counters(brokers)
    _, _, database = brokers.running[-1]
    for partition in ("a", "b", "c"):
        await push(broker, *"1234567", partition=partition)
    await ack(broker, await pop(broker, partition="a"))
    popped = await pop(broker, batch=4, partition="a")
    for message, status in zip(
        reversed(popped.messages), ("completed", "failed", "retry", "dlq"), strict=True
    ):
        await ack(broker, replace(popped, messages=[message]), status)
    popped = await pop(broker, batch=5, partition="b")
    await ack(broker, replace(popped, messages=popped.messages[1:3]))
    await ack(broker, replace(popped, messages=popped.messages[:1]), "failed")
    lease = MessageLease.parse(popped.lease)
    assert lease is not None
    acks = [
        Ack(m.partition_id, *lease, m.transaction_id, status)
        for m, status in zip(popped.messages[3:], ("completed", "retry"), strict=True)
    ]
    await broker.ack(DEFAULT_SCOPE, acks)
    await broker.pop(LOCAL_CALLER, "q", "g", PopOptions(batch=100, max_partitions=10, auto_ack=True))
    await push(broker, "x" * 600, "y" * 600, "z" * 600, partition="d")
    await broker.pop(LOCAL_CALLER, "q", "g", PopOptions(batch=100, max_partitions=10, auto_ack=True))
    row = await database.fetchrow("SELECT sum(completed)::bigint AS completed FROM tallies")
    assert row is not None
    counted = await counters()
    assert counted["ak"] > 7
    assert row["completed"] == counted["ak"]
