"""Minute rows of a broker process: their counts, when they are written, and outages of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from datetime import timedelta

import asyncpg
import pytest
import pytest_asyncio

from penstock.broker.broker import Broker
from penstock.broker.messages import Ack, MessageLease, NewMessage
from penstock.broker.self_metrics.lag import LagPercentiles
from penstock.broker.self_metrics.minute import MAX_QUEUES, WorkerIdentity
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.broker.self_metrics.worker_metrics import MAX_UNWRITTEN_MINUTES, WorkerMetrics
from penstock.clock import to_utc
from penstock.durable.pool import Database
from penstock.durable.worker_minutes import QueueWindow, WorkerMinutes
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE, Scope
from penstock.streams.emitter import Emitter
from penstock.telemetry import OVERFLOW
from tests.integration.broker.brokers import UNREACHABLE_REDIS_URL, Brokers, CuttableProxy, ack, pop, push
from tests.integration.environments import create_environment
from tests.waiting import wait_until_async

START_S = 1_900_000_100.0
"""Twenty seconds after the start of an even minute."""
MINUTE = timedelta(minutes=1)


class FixedClock:
    def __init__(self, now: float = START_S) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def create_worker_metrics(broker: Broker, clock: Callable[[], float], number: int = 0) -> WorkerMetrics:
    """Return worker metrics that are not started: the test takes the samples."""
    metrics = broker.pushes._context.metrics
    worker = WorkerMetrics(
        WorkerIdentity("here", number, 7, clock()),
        broker.database,
        metrics,
        broker.load,
        broker.batchers,
        lambda: broker.parked_pops.count,
        clock=clock,
    )
    metrics.observer = worker.observe
    return worker


@pytest_asyncio.fixture
async def clock() -> FixedClock:
    return FixedClock()


@pytest_asyncio.fixture
async def worker(broker: Broker, clock: FixedClock) -> AsyncIterator[WorkerMetrics]:
    yield create_worker_metrics(broker, clock)


async def read_throughput(database: Database, width: timedelta = MINUTE) -> list[dict[str, object]]:
    start = to_utc(START_S) - timedelta(hours=2)
    rows = await WorkerMinutes(database).read_throughput(start, to_utc(START_S) + timedelta(hours=2), width)
    return [asdict(row) for row in rows]


async def test_requests_and_messages_are_counted_separately(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    await push(broker, "1", "2", "3")
    popped = await pop(broker, batch=10)
    await pop(broker)  # an empty pop is a request too
    await ack(broker, popped)
    await push(broker, "4")
    held = await pop(broker)
    lease = MessageLease.parse(held.lease)
    assert lease is not None
    acks = [Ack(m.partition_id, *lease, m.transaction_id, "completed") for m in held.messages]
    await broker.transaction(DEFAULT_SCOPE, [NewMessage("q", "Default", b"5")], acks)
    await ack(broker, await pop(broker), "dlq")
    clock.now += 10
    worker.sample()
    await worker.write_minutes()
    [row] = await read_throughput(database)
    counts = {
        name: row[name] for name in row if name.endswith(("_requests", "_messages", "_letters", "_errors"))
    }
    assert counts == {
        "push_requests": 2,
        "push_messages": 5,
        "pop_requests": 4,
        "pop_messages": 5,
        "ack_requests": 2,
        "ack_messages": 5,
        "transaction_requests": 1,
        "transaction_messages": 2,
        "dead_letters": 1,
        "database_errors": 0,
    }
    assert row["lag_count"] == 5


async def test_rates_use_the_covered_seconds(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    await push(broker, *map(str, range(30)))
    clock.now += 15
    worker.sample()
    await worker.write_minutes()
    [row] = await read_throughput(database)
    assert (row["covered_s"], row["push_per_s"], row["workers"]) == (15.0, 2.0, 1)

    # A second process covers some of the same seconds and five others.
    clock.now -= 5
    other_worker = create_worker_metrics(broker, clock, number=1)
    await push(broker, *map(str, range(10)))
    clock.now += 10
    other_worker.sample()
    await other_worker.write_minutes()
    [row] = await read_throughput(database)
    assert (row["covered_s"], row["push_per_s"], row["workers"]) == (20.0, 2.0, 2)


async def test_a_row_that_is_written_twice_counts_once(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    for _ in range(3):
        await push(broker, "1", "2")
        clock.now += 10
        worker.sample()
        await worker.write_minutes()
        await worker.write_minutes()
    [row] = await read_throughput(database)
    assert (row["push_messages"], row["push_requests"], row["covered_s"]) == (6, 3, 30.0)
    clock.now += 30  # into the next minute
    worker.sample()
    await push(broker, "3")
    clock.now += 10
    worker.sample()
    await worker.write_minutes()
    first, second = await read_throughput(database)
    assert (first["covered_s"], first["push_messages"]) == (40.0, 6)
    assert (second["covered_s"], second["push_messages"]) == (30.0, 1)
    [both] = await read_throughput(database, timedelta(minutes=2))
    assert (both["covered_s"], both["push_messages"]) == (70.0, 7)


async def test_a_killed_process_leaves_a_gap(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    await push(broker, *map(str, range(20)))
    clock.now += 10
    worker.sample()
    await worker.write_minutes()
    await push(broker, "lost with the process")
    clock.now += 5
    worker.sample()  # the process is killed before it writes this
    clock.now += 10
    successor = create_worker_metrics(broker, clock, number=0)
    await push(broker, *map(str, range(10)))
    clock.now += 10
    successor.sample()
    await successor.write_minutes()
    [row] = await read_throughput(database)
    assert (row["push_messages"], row["covered_s"], row["push_per_s"]) == (30, 20.0, 1.5)


async def test_get_throughput_works_from_any_session(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database_url: str
) -> None:
    await push(broker, "1", "2")
    clock.now += 4
    worker.sample()
    await worker.write_minutes()
    session = await asyncpg.connect(database_url)
    try:
        rows = await session.fetch(
            """SELECT * FROM penstock.get_throughput(
                   to_timestamp($1::float8 - 60), to_timestamp($1::float8 + 60), interval '1 hour')""",
            START_S,
        )
    finally:
        await session.close()
    assert [(row["push_messages"], row["push_per_s"]) for row in rows] == [(2, 0.5)]


async def test_a_bounded_number_of_unwritten_minutes_is_kept(
    brokers: Brokers, database_url: str, clock: FixedClock, database: Database
) -> None:
    proxy = CuttableProxy(database_url)
    async with proxy.run() as url:
        brokers.url = url
        broker = await brokers.start()
        worker = create_worker_metrics(broker, clock)
        await push(broker, "1")
        proxy.cut()
        with pytest.raises(DatabaseUnavailable):
            await worker.write_minutes()
        for _ in range(3):
            clock.now += 60
            worker.sample()
        assert (worker.unwritten_minutes, worker.dropped_minutes) == (3, 0)
        with pytest.raises(DatabaseUnavailable):
            await worker.write_minutes()
        proxy.restore()

        async def can_write() -> bool:
            await worker.write_minutes()
            return True

        await wait_until_async(can_write, 20, "the database is back")
        assert worker.unwritten_minutes == 0
        rows = await read_throughput(database)
        assert [row["push_messages"] for row in rows] == [1, 0, 0, 0]
        proxy.cut()
        for _ in range(MAX_UNWRITTEN_MINUTES + 5):
            clock.now += 60
            worker.sample()
        assert (worker.unwritten_minutes, worker.dropped_minutes) == (MAX_UNWRITTEN_MINUTES, 5)
        proxy.restore()


async def test_a_failed_write_of_rows_is_not_counted_as_a_database_error() -> None:
    unreachable = Database("postgresql://penstock@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable):
        await WorkerMinutes(unreachable).write([], [])
    assert unreachable.errors == 0
    unreachable = Database("postgresql://penstock@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable):
        await unreachable.ping()
    assert unreachable.errors == 1
    await unreachable.close()


async def test_the_last_row_is_written_when_the_process_stops(
    broker: Broker, database: Database, clock: FixedClock
) -> None:
    worker = create_worker_metrics(broker, clock)
    await worker.start()
    await push(broker, "1", "2", "3")
    clock.now += 3
    await worker.stop()
    await worker.stop()
    [row] = await read_throughput(database)
    assert (row["push_messages"], row["covered_s"]) == (3, 3.0)
    assert worker.dropped_minutes == 0


async def test_lag_percentiles_match_the_wait_times(
    brokers: Brokers, clock: FixedClock, database: Database
) -> None:
    """Half of the messages wait 2 s until they are popped, half 10 s."""
    broker = await brokers.start()
    worker = create_worker_metrics(broker, clock)
    for waited_s, queue in ((2, "two"), (10, "ten")):
        await push(broker, *map(str, range(50)), queue=queue)
        [row] = await database.fetch("SELECT max(created_at) AS at FROM log")
        broker.pops._clock = FixedClock(row["at"].timestamp() + waited_s)
        assert len((await pop(broker, queue, "g", batch=100)).messages) == 50
    clock.now += 10
    worker.sample()
    await worker.write_minutes()
    [bucket] = await read_throughput(database)
    assert bucket["avg_lag_ms"] == pytest.approx(6_000, rel=0.01)
    assert bucket["max_lag_ms"] == pytest.approx(10_000, rel=0.01)
    window = QueueWindow(to_utc(START_S) - MINUTE, to_utc(START_S) + MINUTE, MINUTE, group="g")
    percentiles = LagPercentiles()
    async for rows in WorkerMinutes(database).queue_lag_digests(DEFAULT_SCOPE, window):
        for digest in rows:
            percentiles.add(digest.queue, [digest.lag_digest])
            percentiles.add("all", [digest.lag_digest])
    assert percentiles.get("two")["p50"] == pytest.approx(2_000, rel=0.01)
    assert percentiles.get("ten")["p99"] == pytest.approx(10_000, rel=0.01)
    assert percentiles.get("all")["p95"] == pytest.approx(10_000, rel=0.01)


async def test_queues_beyond_the_limit_share_a_row(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    metrics = broker.pushes._context.metrics
    for number in range(MAX_QUEUES + 20):
        metrics.count_pushed(DEFAULT_SCOPE, number, f"q{number}", 1)
    worker.sample()
    await worker.write_minutes()
    window = QueueWindow(to_utc(START_S) - MINUTE, to_utc(START_S) + MINUTE, MINUTE)
    rows = await WorkerMinutes(database).read_queues(DEFAULT_SCOPE, window)
    assert len(rows) == MAX_QUEUES + 1
    assert {row.queue: row.push_messages for row in rows}[OVERFLOW] == 20
    assert worker.queues.totals[DEFAULT_SCOPE, OVERFLOW, ""].counts["push_messages"] == 20
    [row] = await read_throughput(database)
    assert row["push_messages"] == MAX_QUEUES + 20


async def test_environments_share_no_row_and_no_counter(
    broker: Broker, worker: WorkerMetrics, clock: FixedClock, database: Database
) -> None:
    metrics, other = broker.pushes._context.metrics, Scope("acme", "shop", "production")
    await create_environment(database, other)
    metrics.count_pushed(other, 1, "q", 5)
    for number in range(MAX_QUEUES):
        metrics.count_pushed(DEFAULT_SCOPE, number + 2, f"q{number}", 1)
    metrics.count_pushed(other, MAX_QUEUES + 2, "beyond the limit", 7)
    worker.sample()
    await worker.write_minutes()
    window = QueueWindow(to_utc(START_S) - MINUTE, to_utc(START_S) + MINUTE, MINUTE)
    rows = {
        scope: await WorkerMinutes(database).read_queues(scope, window) for scope in (other, DEFAULT_SCOPE)
    }
    assert {row.queue: row.push_messages for row in rows[other]} == {"q": 5, OVERFLOW: 7}
    assert {row.push_messages for row in rows[DEFAULT_SCOPE]} == {1}
    totals = worker.queues.totals
    assert totals[other, "q", ""].counts["push_messages"] == 5
    assert totals[other, OVERFLOW, ""].counts["push_messages"] == 7


async def test_one_event_per_second_is_sent_every_fifteen_seconds(clock: FixedClock) -> None:
    start_s = START_S // 15 * 15 + 15
    emitter = Emitter(UNREACHABLE_REDIS_URL, buffer=100)
    events = WorkerEvents(emitter, WorkerIdentity("here", 3, 7, START_S))
    gauges = {"busy_connections": 2, "resident_bytes": 1000}
    for second in range(1, 15):
        events.add_second(start_s + second, {"push_requests": second}, gauges, 0.002)
    assert emitter.pending == 0
    events.add_second(start_s + 15, {"push_requests": 4}, gauges, 0.002)
    assert emitter.pending == 15
