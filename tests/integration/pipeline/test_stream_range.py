"""Reading a range of a stream: complete, repeatable, and exact about what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from events import NOW_MS, add, event
from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import QUEUE
from penstock.pipeline import stream_range
from penstock.pipeline.stream_range import RangeContent, RawConnection, StreamRange, read_range
from penstock.streams.wire import Reason

KEY = QUEUE.stream_keys[0]


@pytest.fixture
def connection(stream_url: str) -> Iterator[RawConnection]:
    opened = RawConnection(stream_url)
    yield opened
    opened.close()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_range, "CHUNK_ENTRIES", 10)


def enqueued(content: RangeContent) -> int:
    return 0 if content.rows is None else int(content.rows.counters["enqueued"].sum())


def filled(redis: Redis, count: int) -> list[str]:
    return [add(redis, 0, event(eq=1 << n), f"{NOW_MS + 1000 * n}-0") for n in range(count)]


@pytest.mark.usefixtures("small_chunks")
def test_a_range_holds_what_lies_after_its_start_up_to_its_end(
    connection: RawConnection, redis: Redis
) -> None:
    ids = filled(redis, 45)
    content = read_range(connection, QUEUE, StreamRange(0, KEY, ids[4], ids[39], 5, 40))
    assert content.entries == 35
    assert enqueued(content) == sum(1 << n for n in range(5, 40))
    assert (content.lost, content.end_entries) == (0, 40)
    assert content.rows is not None
    assert len(content.rows) == 7  # 35 seconds


@pytest.mark.usefixtures("small_chunks")
def test_later_entries_do_not_change_a_range(connection: RawConnection, redis: Redis) -> None:
    ids = filled(redis, 25)
    wanted = StreamRange(0, KEY, "0-0", ids[-1], 0, None)
    first = read_range(connection, QUEUE, wanted)
    add(redis, 0, event(eq=1), "*")
    again = read_range(connection, QUEUE, wanted)
    assert first.rows is not None
    assert again.rows is not None
    assert [d.to_pylist() for d in first.rows.dimensions] == [d.to_pylist() for d in again.rows.dimensions]
    for name in ("at_ms", "events", "seen_ms", "seen_id", "newest_ms"):
        assert getattr(first.rows, name).tolist() == getattr(again.rows, name).tolist()
    assert enqueued(first) == enqueued(again) == (1 << 25) - 1
    assert again.end_entries == 25


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("end_known", [True, False])
def test_what_was_trimmed_before_it_was_read_is_counted(
    connection: RawConnection, redis: Redis, end_known: bool
) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=30, approximate=False)
    wanted = StreamRange(0, KEY, ids[4], ids[39], 5, 40 if end_known else None)
    content = read_range(connection, QUEUE, wanted)
    assert (content.entries, content.lost, content.end_entries) == (25, 10, 40)


@pytest.mark.usefixtures("small_chunks")
def test_a_range_that_is_gone_is_counted_with_the_next_one(connection: RawConnection, redis: Redis) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=5, approximate=False)
    gone = read_range(connection, QUEUE, StreamRange(0, KEY, ids[4], ids[19], 5, None))
    assert (gone.entries, gone.lost, gone.end_entries) == (0, 0, 5)
    rest = read_range(connection, QUEUE, StreamRange(0, KEY, ids[19], ids[44], gone.end_entries, None))
    assert (rest.entries, rest.lost, rest.end_entries) == (5, 35, 45)


def test_entries_that_cannot_be_counted_are_told_with_an_example(
    connection: RawConnection, redis: Redis
) -> None:
    add(redis, 0, event(eq=1))
    bad = add(redis, 0, event(eq="lots"))
    add(redis, 0, event(eq="more"))
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None))
    assert content.set_aside == {Reason.NOT_A_NUMBER: 2}
    assert content.examples[Reason.NOT_A_NUMBER].startswith(f"{bad} org=o")
    assert enqueued(content) == 1


def test_an_error_of_redis_is_an_error(connection: RawConnection, redis: Redis) -> None:
    redis.set(KEY, "not a stream")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        connection.xrange(KEY, "0-0", "+", 10)
    assert connection.xrange("nothing", "0-0", "+", 10)[1:]
