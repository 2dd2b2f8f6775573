"""Counts that were never emitted are found by comparison with PostgreSQL, and emitted once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from penstock.broker.broker import Broker
from penstock.broker.self_metrics.count_repair import CountRepair
from penstock.definitions import ENABLED_KEY, QUEUE
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitted_totals import TOTALS_KEY
from penstock.streams.emitter import Emitter
from tests.emitted_counts import read_queue_events, sum_emitted_counts
from tests.integration.broker.brokers import Brokers, ack, pop, push
from tests.waiting import wait_until_async


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def emitter(redis_url: str) -> AsyncIterator[Emitter]:
    started = Emitter(redis_url, buffer=1_000)
    started.start()
    yield started
    await started.stop()


def count_repair(brokers: Brokers, emitter: Emitter) -> CountRepair:
    """Return the repair of the broker that was started last."""
    _, metrics, database = brokers.running[-1]
    return CountRepair(metrics, emitter, database, settle_s=0.1)


async def start_broker_without_emission(brokers: Brokers) -> Broker:
    """Start a broker that loses all its counts, as one that is killed loses the last ones."""
    return await brokers.start()


async def push_and_ack(broker: Broker, pushed: int, acked: int, queue: str = "q") -> None:
    await push(broker, *map(str, range(pushed)), queue=queue)
    if acked:
        await ack(broker, await pop(broker, queue, batch=acked))


async def wait_until_emitted(brokers: Brokers, emitter: Emitter) -> None:
    for _, metrics, _ in brokers.running:
        await metrics.flush()

    async def is_empty() -> bool:
        return emitter.pending == 0

    await wait_until_async(is_empty, 10, "all events are written")


async def compare(brokers: Brokers, emitter: Emitter, *repairs: CountRepair) -> None:
    """Compare until every difference is repaired: each round follows the emission of all counts."""
    for _ in range(3):
        await wait_until_emitted(brokers, emitter)
        await asyncio.gather(*(repair.compare() for repair in repairs))
    await wait_until_emitted(brokers, emitter)


async def test_lost_counts_are_emitted_once(brokers: Brokers, emitter: Emitter, redis: Redis) -> None:
    broker = await brokers.start(emitter=emitter)
    first, second = count_repair(brokers, emitter), count_repair(brokers, emitter)
    await push_and_ack(broker, 5, 3)
    await compare(brokers, emitter, first)
    await push_and_ack(await start_broker_without_emission(brokers), 4, 2)
    await wait_until_emitted(brokers, emitter)
    counts = await sum_emitted_counts(redis, "q")
    assert (counts["enqueued"], counts["acked"]) == (5, 3)
    await first.scan()
    await second.scan()
    await compare(brokers, emitter, first, second)
    counts = await sum_emitted_counts(redis, "q")
    assert (counts["enqueued"], counts["acked"]) == (9, 5)
    assert first.repaired + second.repaired == 4 + 2
    await first.scan()
    await compare(brokers, emitter, first)
    counts = await sum_emitted_counts(redis, "q")
    assert (counts["enqueued"], counts["acked"]) == (9, 5)


async def test_nothing_is_repaired_while_counts_move(
    brokers: Brokers, emitter: Emitter, redis: Redis
) -> None:
    broker = await brokers.start(emitter=emitter)
    repair = count_repair(brokers, emitter)
    await push_and_ack(broker, 1, 0)
    for _ in range(4):
        await repair.compare()
        await push_and_ack(broker, 2, 1)
        # The counts are in the memory of this process, or on their way to Redis.
    assert repair.repaired == 0
    await wait_until_emitted(brokers, emitter)
    await compare(brokers, emitter, repair)
    assert repair.repaired == 0
    counts = await sum_emitted_counts(redis, "q")
    assert (counts["enqueued"], counts["acked"]) == (9, 4)


async def test_a_queue_that_is_older_than_the_totals_is_aligned_without_an_event(
    brokers: Brokers, emitter: Emitter, redis: Redis
) -> None:
    lossy = await start_broker_without_emission(brokers)
    await push_and_ack(lossy, 50, 40)
    await brokers.start(emitter=emitter)
    repair = count_repair(brokers, emitter)
    await repair.scan()
    await compare(brokers, emitter, repair)
    assert (await sum_emitted_counts(redis, "q"))["enqueued"] == 0
    await push_and_ack(lossy, 2, 0)
    await repair.scan()
    await compare(brokers, emitter, repair)
    assert (await sum_emitted_counts(redis, "q"))["enqueued"] == 2


async def test_a_group_that_was_deleted_and_created_again_starts_at_zero(
    brokers: Brokers, emitter: Emitter, redis: Redis
) -> None:
    broker = await brokers.start(emitter=emitter)
    repair = count_repair(brokers, emitter)
    await compare(brokers, emitter, repair)
    await push_and_ack(broker, 6, 4)
    await wait_until_emitted(brokers, emitter)
    await broker.groups.delete(DEFAULT_SCOPE, "g", "q")
    await push_and_ack(broker, 1, 5)
    await wait_until_emitted(brokers, emitter)
    await repair.scan()
    await compare(brokers, emitter, repair)
    assert repair.repaired == 0
    assert (await sum_emitted_counts(redis, "q"))["acked"] == 9
    await broker.queues.delete(DEFAULT_SCOPE, "q")
    await wait_until_emitted(brokers, emitter)
    assert [name for name in await redis.hkeys(TOTALS_KEY) if name != b"first_id"] == []


async def test_a_scan_emits_the_gauges_of_idle_queues(
    brokers: Brokers, emitter: Emitter, redis: Redis
) -> None:
    await push_and_ack(await start_broker_without_emission(brokers), 7, 2)
    await brokers.start(emitter=emitter)
    await count_repair(brokers, emitter).scan()
    await wait_until_emitted(brokers, emitter)
    depths = {
        event.dimensions[4]: event.gauges["depth"]
        for event in await read_queue_events(redis)
        if "depth" in event.gauges
    }
    assert depths == {"": 5, "g": 5}


async def test_the_background_task_repairs_by_itself_and_forgets_totals_while_emission_is_off(
    brokers: Brokers, redis_url: str, redis: Redis
) -> None:
    emitter = Emitter(redis_url, buffer=1_000, switch_interval_s=0.05)
    emitter.start()
    await brokers.start(emitter=emitter)
    repair = count_repair(brokers, emitter)
    await repair.start()
    lossy = await start_broker_without_emission(brokers)

    async def has_totals() -> bool:
        return bool(await redis.exists(TOTALS_KEY))

    await push_and_ack(lossy, 3, 3)
    repair._scan_due_s = 0

    async def is_repaired() -> bool:
        return repair.repaired == 6

    await wait_until_async(is_repaired, 20, "the counts are repaired")
    await redis.set(ENABLED_KEY, 0)

    async def has_no_totals() -> bool:
        return not await has_totals()

    await wait_until_async(has_no_totals, 20, "the totals are removed")
    await repair.stop()
    await emitter.stop()


async def test_counts_carry_the_time_of_the_operation(
    brokers: Brokers, emitter: Emitter, redis: Redis
) -> None:
    broker = await brokers.start(emitter=emitter)
    _, metrics, _ = brokers.running[-1]
    bucket_s = int(time.time()) // 5 * 5 - 60
    now_s = bucket_s + 4.9
    metrics._clock = lambda: now_s
    await push(broker, "a", "b")
    now_s = bucket_s + 5.2
    await push(broker, "c")
    now_s = bucket_s + 11.0
    await wait_until_emitted(brokers, emitter)
    counted = [
        (event.at_ms // QUEUE.bucket_ms * QUEUE.bucket_ms / 1000, event.counters["enqueued"])
        for event in await read_queue_events(redis)
        if "enqueued" in event.counters
    ]
    assert counted == [(bucket_s, 2), (bucket_s + 5, 1)]
