from __future__ import annotations

import threading

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from redis import Redis
from redis.typing import KeyT, StreamIdT

from penstock.definitions import QUEUE
from penstock.pipeline.source.arrivals import MAX_DISTANCE_S, Arrivals
from penstock.pipeline.source.redis_streams import StreamsReader
from penstock.streams.positions import START_ID
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import add, event
from tests.waiting import wait_until

KEYS = QUEUE.stream_keys
NOTHING_READ: dict[KeyT, StreamIdT] = dict.fromkeys(KEYS, START_ID)
LIMIT = ReadMaxRows(1_000)


class Clock:
    """A clock that the test sets. Sleeping moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept_s = 0.0

    def read(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arrivals(clock: Clock) -> Arrivals:
    return Arrivals(0.3, clock.read, clock.sleep)


def test_the_first_call_does_not_wait_for_entries(redis: Redis, arrivals: Arrivals) -> None:
    waiting = threading.Thread(target=arrivals.wait, args=(redis, NOTHING_READ))
    waiting.start()
    waiting.join(deadline_s(1))
    assert not waiting.is_alive()


def test_redis_wakes_a_call_that_waits_for_entries(redis: Redis, stream_url: str) -> None:
    arrivals = Arrivals(0.3)
    arrivals.wait(redis, NOTHING_READ)

    def wait() -> None:
        with Redis.from_url(stream_url) as client:
            while not client.xlen(KEYS[1]):
                arrivals.wait(client, NOTHING_READ)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: redis.info("clients")["blocked_clients"] > 0, 5, "a client waits in Redis")
    redis.xadd(KEYS[1], {"queue": "orders"})
    waiting.join(deadline_s(5))
    assert not waiting.is_alive()


@pytest.mark.parametrize(
    ("batch_s", "rest_s"), [(0.1, 0.2), (0.2, 0.2), (0.4, 0.4), (0.8, MAX_DISTANCE_S - 0.8), (5.0, 0.0)]
)
def test_the_distance_between_batches_grows_with_their_duration(
    redis: Redis, arrivals: Arrivals, clock: Clock, batch_s: float, rest_s: float
) -> None:
    redis.xadd(KEYS[0], {"queue": "orders"})
    arrivals.wait(redis, NOTHING_READ)
    assert clock.slept_s == 0, "an entry after a pause is read at once"
    arrivals.note_batch(leaves_entries=False)
    clock.now_s += batch_s
    arrivals.wait(redis, NOTHING_READ)
    assert clock.slept_s == pytest.approx(rest_s)


def test_a_backlog_is_read_without_a_rest(redis: Redis, arrivals: Arrivals, clock: Clock) -> None:
    redis.xadd(KEYS[0], {"queue": "orders"})
    arrivals.wait(redis, NOTHING_READ)
    arrivals.note_batch(leaves_entries=True)
    clock.now_s += 0.1
    arrivals.wait(redis, NOTHING_READ)
    assert clock.slept_s == 0


def test_a_waiting_reader_plans_the_same_batches(redis: Redis, stream_url: str) -> None:
    waiting = StreamsReader(stream_url, QUEUE, min_distance_ms=100)
    plain = StreamsReader(stream_url, QUEUE)
    start = waiting.initialOffset()
    assert waiting.latestOffset(start, LIMIT) == plain.latestOffset(start, LIMIT) == start
    add(redis, 0, event(eq=1))
    end = waiting.latestOffset(start, LIMIT)
    assert end == plain.latestOffset(start, LIMIT) != start
    redis.xtrim(KEYS[0], maxlen=0)
    add(redis, 0, event(eq=1))
    assert waiting.latestOffset(end, LIMIT) == plain.latestOffset(end, LIMIT) != end
