"""Reading a range of a stream: complete, repeatable, and exact about what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import QUEUE, MetricDefinition
from penstock.pipeline.source import packed_entries, resp_columns, stream_range
from penstock.pipeline.source.entry_chunk import Chunk
from penstock.pipeline.source.range_parts import settle
from penstock.pipeline.source.stream_range import RangeContent, RawConnection, StreamRange, read_range
from penstock.shards import shard_of
from penstock.streams import emit_batch, wire
from penstock.streams.emitter import Emitter
from penstock.streams.packing import pack
from penstock.streams.wire import Reason
from tests.integration.pipeline.events import NOW_MS, add, event

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


def told(*pieces: RangeContent) -> tuple[int, int, int | None]:
    """Entries read, entries lost, and the position reached."""
    whole = settle([piece.found for piece in pieces])
    return whole.entries, whole.lost, whole.reached


def pieces_of(ids: list[str], start: int, cuts: list[int], end: int | None) -> list[StreamRange]:
    """A range from the `start`-th entry to the 40th, divided after the entries named."""
    places = [start, *cuts, 40]
    return [
        StreamRange(0, KEY, ids[places[n] - 1], ids[places[n + 1] - 1], start, end, n, len(cuts) + 1)
        for n in range(len(cuts) + 1)
    ]


def filled(redis: Redis, count: int) -> list[str]:
    return [add(redis, 0, event(eq=1 << n), f"{NOW_MS + 1000 * n}-0") for n in range(count)]


@pytest.mark.usefixtures("small_chunks")
def test_a_range_holds_what_lies_after_its_start_up_to_its_end(
    connection: RawConnection, redis: Redis
) -> None:
    ids = filled(redis, 45)
    content = read_range(connection, QUEUE, StreamRange(0, KEY, ids[4], ids[39], 5, 40))
    assert enqueued(content) == sum(1 << n for n in range(5, 40))
    assert told(content) == (35, 0, 40)
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
    assert told(again) == (25, 0, 25)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("end_known", [True, False])
def test_what_was_trimmed_before_it_was_read_is_counted(
    connection: RawConnection, redis: Redis, end_known: bool
) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=30, approximate=False)
    wanted = StreamRange(0, KEY, ids[4], ids[39], 5, 40 if end_known else None)
    content = read_range(connection, QUEUE, wanted)
    assert told(content) == (25, 10, 40)


@pytest.mark.usefixtures("small_chunks")
def test_a_range_that_is_gone_is_counted_with_the_next_one(connection: RawConnection, redis: Redis) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=5, approximate=False)
    gone = read_range(connection, QUEUE, StreamRange(0, KEY, ids[4], ids[19], 5, None))
    assert told(gone) == (0, 0, 5)
    rest = read_range(connection, QUEUE, StreamRange(0, KEY, ids[19], ids[44], 5, None))
    assert told(rest) == (5, 35, 45)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("trimmed", [0, 5, 8, 19, 20, 26, 30, 39])
@pytest.mark.parametrize("end", [40, None])
def test_pieces_of_a_range_tell_together_what_the_range_tells(
    connection: RawConnection, redis: Redis, trimmed: int, end: int | None
) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=45 - trimmed, approximate=False)
    [whole] = [read_range(connection, QUEUE, wanted) for wanted in pieces_of(ids, 5, [], end)]
    pieces = [read_range(connection, QUEUE, wanted) for wanted in pieces_of(ids, 5, [20, 25], end)]
    assert told(*pieces) == told(whole) == (40 - max(5, trimmed), max(0, trimmed - 5), 40)
    assert sum(map(enqueued, pieces)) == enqueued(whole)


@pytest.mark.usefixtures("small_chunks")
def test_what_is_trimmed_between_pieces_is_counted_once(connection: RawConnection, redis: Redis) -> None:
    ids = filled(redis, 45)
    read = []
    for wanted, length in zip(pieces_of(ids, 5, [15, 30], None), (43, 25, 8), strict=True):
        # The first piece is read before anything it has is gone, the second after entries 16 to 20 are, the
        # third after 31 to 37.
        redis.xtrim(KEY, maxlen=length, approximate=False)
        read.append(read_range(connection, QUEUE, wanted))
    assert told(*read) == (10 + 10 + 3, 5 + 7, 40)


@pytest.mark.usefixtures("small_chunks")
def test_pieces_that_are_gone_are_counted_with_the_next_range(
    connection: RawConnection, redis: Redis
) -> None:
    ids = filled(redis, 45)
    redis.xtrim(KEY, maxlen=3, approximate=False)
    gone = [read_range(connection, QUEUE, wanted) for wanted in pieces_of(ids, 5, [15, 30], None)]
    assert told(*gone) == (0, 0, 5)


def test_a_range_of_packed_and_single_entries_is_read_in_order(
    connection: RawConnection, redis: Redis
) -> None:
    for n in range(30):
        if n % 3:
            events = [(event(eq=1, ql=100 * n + i), NOW_MS) for i in range(50)]
            add(redis, 0, {"p": pack(QUEUE, events)}, f"{NOW_MS}-{n + 1}")
        else:
            add(redis, 0, event(eq=1, ql=n), f"{NOW_MS}-{n + 1}")
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None))
    assert told(content) == (30, 0, 30)
    assert content.rows is not None
    assert content.rows.gauge_last["depth"].tolist() == [2949]
    assert content.rows.events.tolist() == [10 + 20 * 50]


def test_the_emitter_s_packed_entries_give_the_points_of_its_single_ones(
    stream_url: str, redis: Redis, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def emitted() -> RangeContent:
        redis.flushdb()
        emitter = Emitter(stream_url, buffer=10_000)
        for n in range(3_000):
            kinds: list[dict[str, str | int]] = [
                {"eq": n % 5, "ql": n},
                {"dq": 1, "wt": f"{n % 50},{n}", "cc": n % 9, "group": "g"},
                {"eq": -1},
                {"ak": n, "age": n % 7 - 3, "cl": 10**14},
            ]
            some = {"rt": n, "eq": "some", "ak": 1} if n % 50 == 3 else kinds[n % 4]
            emitter.emit(QUEUE, event(f"q{n % 40}", t=NOW_MS + 7 * n, **some), shard_key="one")
        emitter.start()
        await emitter.stop(20)
        assert emitter.emitted == 3_000
        key = QUEUE.stream_keys[shard_of("one", 2)]
        return read_range(connection, QUEUE, StreamRange(0, key, "0-0", "+", 0, None))

    monkeypatch.setattr(wire, "LATEST_MS", 10**13)  # the events' time is not today's
    monkeypatch.setattr(packed_entries, "LATEST_MS", 10**13)
    monkeypatch.setattr(resp_columns, "LATEST_MS", 10**13)
    packed = asyncio.run(emitted())
    monkeypatch.setattr(emit_batch, "PACK_FROM", 10**9)
    single = asyncio.run(emitted())
    assert packed.found.entries < 300 < 3_000 == single.found.entries
    assert packed.set_aside == single.set_aside == {Reason.NEGATIVE_COUNT: 750, Reason.NOT_A_NUMBER: 60}
    assert without_ids(packed) == without_ids(single)


def without_ids(content: RangeContent) -> list[tuple[object, ...]]:
    assert content.rows is not None
    rows = content.rows
    columns = [rows.at_ms, rows.events, rows.newest_ms, rows.seen_ms]
    columns += [*rows.counters.values(), *rows.gauge_max.values(), *rows.gauge_last.values()]
    columns += [lists.lengths for lists in rows.samples.values()]
    texts = [dimension.to_pylist() for dimension in rows.dimensions]
    return sorted(zip(*texts, *(column.tolist() for column in columns), strict=True))


def test_large_entries_after_small_ones_are_not_taken_apart_together(
    connection: RawConnection, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_range, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(stream_range, "FIRST_CHUNK_ENTRIES", 50)
    sizes: list[int] = []

    def measured(definition: MetricDefinition, buffer: bytearray, begin: int, end: int) -> Chunk:
        sizes.append(end - begin)
        return resp_columns.read_reply(definition, buffer, begin, end)

    monkeypatch.setattr(stream_range, "read_reply", measured)
    for n in range(300):
        add(redis, 0, event(eq=1, note="x" * (10 if n < 100 else 1_900)), f"{NOW_MS}-{n + 1}")
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None))
    assert told(content) == (300, 0, 300)
    assert enqueued(content) == 300
    assert max(sizes) <= 80_000
    assert len(sizes) <= 300 / 10 + 5


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
