"""Minute rows of a broker process: what they count, when they are written, what if they cannot be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import asyncpg
import pytest
import pytest_asyncio

from penstock.broker.broker import Broker
from penstock.broker.messages import AckRequest, MessageLease, NewMessage
from penstock.broker.self_metrics.lag import Percentiles
from penstock.broker.self_metrics.minute import MOST_QUEUES, Identity
from penstock.broker.self_metrics.worker_events import WorkerEvents
from penstock.broker.self_metrics.worker_metrics import MOST_MINUTES, WorkerMetrics
from penstock.clock import to_utc
from penstock.durable import minute_rows
from penstock.durable.pool import Database
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE
from penstock.streams.emitter import Emitter
from penstock.telemetry import OVERFLOW
from tests.integration.broker.brokers import NOBODY, Brokers, Cable, ack, pop, push
from tests.waiting import wait_until_async

NOON = 1_900_000_100.0
"""Twenty seconds into an even minute."""
MINUTE = timedelta(minutes=1)


class SetClock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def measuring(broker: Broker, clock: Callable[[], float], number: int = 0) -> WorkerMetrics:
    """The measurements of a broker, not started: the test says when a second is over."""
    metrics = broker.pushes._context.metrics
    made = WorkerMetrics(
        Identity("here", number, 7, clock()),
        broker.database,
        metrics,
        broker.load,
        broker.batchers,
        lambda: broker.parked_pops.count,
        clock=clock,
    )
    metrics.observer = made._observe
    return made


@pytest_asyncio.fixture
async def clock() -> SetClock:
    return SetClock()


@pytest_asyncio.fixture
async def worker(broker: Broker, clock: SetClock) -> AsyncIterator[WorkerMetrics]:
    yield measuring(broker, clock)


async def throughput(database: Database, width: timedelta = MINUTE) -> list[dict[str, object]]:
    start = to_utc(NOON) - timedelta(hours=2)
    rows = await minute_rows.throughput(database, start, to_utc(NOON) + timedelta(hours=2), width)
    return [dict(row) for row in rows]


async def test_requests_and_messages_are_counted_apart(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database: Database
) -> None:
    await push(broker, "1", "2", "3")
    popped = await pop(broker, batch=10)
    await pop(broker)  # finds nothing, and is a request all the same
    await ack(broker, popped)
    await push(broker, "4")
    held = await pop(broker)
    lease = MessageLease.parse(held.lease)
    assert lease is not None
    done = [AckRequest(m.partition_id, m.transaction_id, lease, "completed") for m in held.messages]
    await broker.transaction(DEFAULT_SCOPE, [NewMessage("q", "Default", b"5")], done)
    await ack(broker, await pop(broker), "dlq")
    clock.now += 10
    worker.tick()
    await worker.write()
    [row] = await throughput(database)
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


async def test_rates_are_over_the_seconds_that_are_covered(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database: Database
) -> None:
    await push(broker, *map(str, range(30)))
    clock.now += 15
    worker.tick()
    await worker.write()
    [row] = await throughput(database)
    assert (row["covered_s"], row["push_per_s"], row["workers"]) == (15.0, 2.0, 1)

    # A second process that covers a part of the same seconds and five of its own.
    clock.now -= 5
    other = measuring(broker, clock, number=1)
    await push(broker, *map(str, range(10)))
    clock.now += 10
    other.tick()
    await other.write()
    [row] = await throughput(database)
    assert (row["covered_s"], row["push_per_s"], row["workers"]) == (20.0, 2.0, 2)


async def test_a_row_written_twice_counts_once_and_the_running_minute_goes_on(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database: Database
) -> None:
    for _ in range(3):
        await push(broker, "1", "2")
        clock.now += 10
        worker.tick()
        await worker.write()
        await worker.write()
    [row] = await throughput(database)
    assert (row["push_messages"], row["push_requests"], row["covered_s"]) == (6, 3, 30.0)
    clock.now += 30  # into the next minute
    worker.tick()
    await push(broker, "3")
    clock.now += 10
    worker.tick()
    await worker.write()
    first, second = await throughput(database)
    assert (first["covered_s"], first["push_messages"]) == (40.0, 6)
    assert (second["covered_s"], second["push_messages"]) == (30.0, 1)
    [both] = await throughput(database, timedelta(minutes=2))
    assert (both["covered_s"], both["push_messages"]) == (70.0, 7)


async def test_a_process_that_dies_leaves_a_gap(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database: Database
) -> None:
    await push(broker, *map(str, range(20)))
    clock.now += 10
    worker.tick()
    await worker.write()
    await push(broker, "lost with the process")
    clock.now += 5
    worker.tick()  # it is killed before it writes this
    clock.now += 10
    successor = measuring(broker, clock, number=0)
    await push(broker, *map(str, range(10)))
    clock.now += 10
    successor.tick()
    await successor.write()
    [row] = await throughput(database)
    assert (row["push_messages"], row["covered_s"], row["push_per_s"]) == (30, 20.0, 1.5)


async def test_people_can_ask_for_throughput_from_any_session(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database_url: str
) -> None:
    await push(broker, "1", "2")
    clock.now += 4
    worker.tick()
    await worker.write()
    session = await asyncpg.connect(database_url)
    try:
        rows = await session.fetch(
            """SELECT * FROM penstock.get_throughput(
                   to_timestamp($1::float8 - 60), to_timestamp($1::float8 + 60), interval '1 hour')""",
            NOON,
        )
    finally:
        await session.close()
    assert [(row["push_messages"], row["push_per_s"]) for row in rows] == [(2, 0.5)]


async def test_minutes_that_cannot_be_written_are_kept_within_bounds(
    brokers: Brokers, database_url: str, clock: SetClock, database: Database
) -> None:
    cable = Cable(database_url)
    async with cable.laid() as url:
        brokers.url = url
        broker = await brokers.start()
        worker = measuring(broker, clock)
        await push(broker, "1")
        cable.sever()
        with pytest.raises(DatabaseUnavailable):
            await worker.write()
        for _ in range(3):
            clock.now += 60
            worker.tick()
        assert (worker.unwritten, worker.dropped) == (3, 0)
        with pytest.raises(DatabaseUnavailable):
            await worker.write()
        cable.mend()

        async def written() -> bool:
            await worker.write()
            return True

        await wait_until_async(written, 20, "the database is back")
        assert worker.unwritten == 0
        rows = await throughput(database)
        assert [row["push_messages"] for row in rows] == [1, 0, 0, 0]
        cable.sever()
        for _ in range(MOST_MINUTES + 5):
            clock.now += 60
            worker.tick()
        assert (worker.unwritten, worker.dropped) == (MOST_MINUTES, 5)
        cable.mend()


async def test_writing_rows_is_not_counted_among_what_they_tell() -> None:
    nowhere = Database("postgresql://penstock@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable):
        await minute_rows.write(nowhere, [], [])
    assert nowhere.errors == 0
    nowhere = Database("postgresql://penstock@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable):
        await nowhere.ping()
    assert nowhere.errors == 1
    await nowhere.close()


async def test_the_last_row_is_written_when_the_process_stops(
    broker: Broker, database: Database, clock: SetClock
) -> None:
    worker = measuring(broker, clock)
    await worker.start()
    await push(broker, "1", "2", "3")
    clock.now += 3
    await worker.stop()
    await worker.stop()
    [row] = await throughput(database)
    assert (row["push_messages"], row["covered_s"]) == (3, 3.0)
    assert worker.dropped == 0


async def test_an_injected_lag_is_read_back(brokers: Brokers, clock: SetClock, database: Database) -> None:
    """Half of the messages have waited 2 s when they are popped, half 10 s."""
    broker = await brokers.start()
    worker = measuring(broker, clock)
    for waited_s, queue in ((2, "two"), (10, "ten")):
        await push(broker, *map(str, range(50)), queue=queue)
        [row] = await database.fetch("SELECT max(created_at) AS at FROM log")
        moment = row["at"].timestamp() + waited_s
        broker.pops._clock = lambda moment=moment: moment
        assert len((await pop(broker, queue, "g", batch=100)).messages) == 50
    clock.now += 10
    worker.tick()
    await worker.write()
    [row] = await throughput(database)
    assert row["avg_lag_ms"] == pytest.approx(6_000, rel=0.01)
    assert row["max_lag_ms"] == pytest.approx(10_000, rel=0.01)
    window = (to_utc(NOON) - MINUTE, to_utc(NOON) + MINUTE, MINUTE)
    percentiles = Percentiles()
    async for rows in minute_rows.queue_digests(database, DEFAULT_SCOPE, *window, None, "g"):
        for found in rows:
            percentiles.add(found["queue"], [found["lag_digest"]])
            percentiles.add("all", [found["lag_digest"]])
    assert percentiles.of("two")["p50"] == pytest.approx(2_000, rel=0.01)
    assert percentiles.of("ten")["p99"] == pytest.approx(10_000, rel=0.01)
    assert percentiles.of("all")["p95"] == pytest.approx(10_000, rel=0.01)


async def test_past_a_limit_queues_share_a_row(
    broker: Broker, worker: WorkerMetrics, clock: SetClock, database: Database
) -> None:
    metrics = broker.pushes._context.metrics
    for number in range(MOST_QUEUES + 20):
        metrics.pushed(DEFAULT_SCOPE, number, f"q{number}", 1)
    worker.tick()
    await worker.write()
    window = (to_utc(NOON) - MINUTE, to_utc(NOON) + MINUTE, MINUTE)
    rows = await minute_rows.queue_minutes(database, DEFAULT_SCOPE, *window, None, None)
    assert len(rows) == MOST_QUEUES + 1
    assert {row["queue"]: row["push_messages"] for row in rows}[OVERFLOW] == 20
    assert worker.queues.totals[(OVERFLOW, "")].counts["push_messages"] == 20
    [row] = await throughput(database)
    assert row["push_messages"] == MOST_QUEUES + 20


async def test_events_tell_of_each_second_and_are_sent_together(clock: SetClock) -> None:
    emitter = Emitter(NOBODY, buffer=100)
    events = WorkerEvents(emitter, Identity("here", 3, 7, NOON))
    gauges = {"busy_connections": 2, "resident_bytes": 1000}
    for second in range(1, 5):
        events.add(NOON + second, {"push_requests": second}, gauges, 0.002)
    assert emitter.pending == 0
    events.add(NOON + 5, {"push_requests": 4}, gauges, 0.002)
    assert emitter.pending == 5
