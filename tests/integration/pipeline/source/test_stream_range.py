"""Tests of reading a range of a stream: complete, repeatable, and with exact counts of lost entries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from penstock.definitions import QUEUE, MetricDefinition
from penstock.pipeline.source import resp_columns, stream_range
from penstock.pipeline.source.entry_chunk import EntryChunk
from penstock.pipeline.source.range_parts import combine_parts
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.stream_range import (
    ChunkLimits,
    RangeContent,
    StreamRange,
    read_range,
)
from penstock.shards import shard_of
from penstock.streams.emitter import Emitter
from penstock.streams.packing import pack
from penstock.streams.wire import RejectionReason
from tests.integration.pipeline.events import NOW_MS, add, event

KEY = QUEUE.stream_keys[0]
SMALL_CHUNKS = ChunkLimits(max_entries=10)


@pytest.fixture
def connection(stream_url: str) -> Iterator[RawConnection]:
    opened = RawConnection(stream_url)
    yield opened
    opened.close()


def enqueued(content: RangeContent) -> int:
    return 0 if content.rows is None else int(content.rows.counters["enqueued"].sum())


def counts(*parts: RangeContent) -> tuple[int, int, int | None]:
    """Return entries read, entries lost, and the rank reached."""
    whole = combine_parts([part.counts for part in parts])
    return whole.entries, whole.lost, whole.reached_rank


def times_ms(*ids: str) -> tuple[int, ...]:
    return tuple(int(entry_id.split("-")[0]) for entry_id in ids)


def split_range(ids: list[str], start: int, splits: list[int], end: int | None) -> list[StreamRange]:
    """Return a range from the `start`-th entry to the 40th, split after the given entries."""
    bounds = [start, *splits, 40]
    return [
        StreamRange(0, KEY, ids[bounds[n] - 1], ids[bounds[n + 1] - 1], start, end, n, len(splits) + 1)
        for n in range(len(splits) + 1)
    ]


def add_entries(redis: Redis, count: int) -> list[str]:
    return [add(redis, 0, event(eq=1 << n), f"{NOW_MS + 1000 * n}-0") for n in range(count)]


def test_a_range_excludes_its_start_and_includes_its_end(connection: RawConnection, redis: Redis) -> None:
    ids = add_entries(redis, 45)
    content = read_range(connection, QUEUE, StreamRange(0, KEY, ids[4], ids[39], 5, 40), limits=SMALL_CHUNKS)
    assert enqueued(content) == sum(1 << n for n in range(5, 40))
    assert counts(content) == (35, 0, 40)
    assert content.rows is not None
    assert len(content.rows) == 7  # 35 seconds


def test_entries_added_later_do_not_change_a_range(connection: RawConnection, redis: Redis) -> None:
    ids = add_entries(redis, 25)
    requested = StreamRange(0, KEY, "0-0", ids[-1], 0, None)
    first = read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
    add(redis, 0, event(eq=1), "*")
    again = read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
    assert first.rows is not None
    assert again.rows is not None
    assert [d.to_pylist() for d in first.rows.dimensions] == [d.to_pylist() for d in again.rows.dimensions]
    for name in ("at_ms", "events", "seen_ms", "seen_id", "newest_ms"):
        assert getattr(first.rows, name).tolist() == getattr(again.rows, name).tolist()
    assert enqueued(first) == enqueued(again) == (1 << 25) - 1
    assert counts(again) == (25, 0, 25)


@pytest.mark.parametrize("end_known", [True, False])
def test_entries_trimmed_before_reading_are_counted_as_lost(
    connection: RawConnection, redis: Redis, end_known: bool
) -> None:
    ids = add_entries(redis, 45)
    redis.xtrim(KEY, maxlen=30, approximate=False)
    requested = StreamRange(0, KEY, ids[4], ids[39], 5, 40 if end_known else None)
    content = read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
    assert counts(content) == (25, 10, 40)
    assert combine_parts([content.counts]).gap_ms == times_ms(ids[4], ids[15])


def test_a_range_that_was_trimmed_completely_is_counted_as_lost_with_the_next_one(
    connection: RawConnection, redis: Redis
) -> None:
    ids = add_entries(redis, 45)
    redis.xtrim(KEY, maxlen=5, approximate=False)
    trimmed_range = read_range(
        connection, QUEUE, StreamRange(0, KEY, ids[4], ids[19], 5, None), limits=SMALL_CHUNKS
    )
    assert counts(trimmed_range) == (0, 0, 5)
    assert combine_parts([trimmed_range.counts]).gap_ms == times_ms(ids[4], ids[19])
    next_range = read_range(
        connection, QUEUE, StreamRange(0, KEY, ids[19], ids[44], 5, None), limits=SMALL_CHUNKS
    )
    assert counts(next_range) == (5, 35, 45)
    assert combine_parts([next_range.counts]).gap_ms == times_ms(ids[19], ids[40])


@pytest.mark.parametrize("trimmed", [0, 5, 8, 19, 20, 26, 30, 39])
@pytest.mark.parametrize("end", [40, None])
def test_the_parts_of_a_range_add_up_to_the_counts_of_the_range(
    connection: RawConnection, redis: Redis, trimmed: int, end: int | None
) -> None:
    ids = add_entries(redis, 45)
    redis.xtrim(KEY, maxlen=45 - trimmed, approximate=False)
    [whole] = [
        read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
        for requested in split_range(ids, 5, [], end)
    ]
    parts = [
        read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
        for requested in split_range(ids, 5, [20, 25], end)
    ]
    assert counts(*parts) == counts(whole) == (40 - max(5, trimmed), max(0, trimmed - 5), 40)
    if trimmed > 5:
        first_missing_and_surviving = times_ms(ids[4], ids[trimmed])
        assert combine_parts([whole.counts]).gap_ms == first_missing_and_surviving
        assert combine_parts([part.counts for part in parts]).gap_ms == first_missing_and_surviving
    assert sum(map(enqueued, parts)) == enqueued(whole)


def test_entries_trimmed_between_parts_are_counted_once(connection: RawConnection, redis: Redis) -> None:
    ids = add_entries(redis, 45)
    read = []
    for requested, length in zip(split_range(ids, 5, [15, 30], None), (43, 25, 8), strict=True):
        # The first part is read before any of its entries is trimmed, the second after 16 to 20 are trimmed,
        # the third after 31 to 37.
        redis.xtrim(KEY, maxlen=length, approximate=False)
        read.append(read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS))
    assert counts(*read) == (10 + 10 + 3, 5 + 7, 40)


def test_parts_that_were_trimmed_completely_are_counted_with_the_next_range(
    connection: RawConnection, redis: Redis
) -> None:
    ids = add_entries(redis, 45)
    redis.xtrim(KEY, maxlen=3, approximate=False)
    trimmed_range = [
        read_range(connection, QUEUE, requested, limits=SMALL_CHUNKS)
        for requested in split_range(ids, 5, [15, 30], None)
    ]
    assert counts(*trimmed_range) == (0, 0, 5)


def test_a_range_of_packed_and_single_entries_is_read_in_order(
    connection: RawConnection, redis: Redis
) -> None:
    for n in range(30):
        if n % 3:
            events = [(event(eq=1, ql=100 * n + i), NOW_MS) for i in range(50)]
            add(redis, 0, {"p": pack(QUEUE, events) or b""}, f"{NOW_MS}-{n + 1}")
        else:
            add(redis, 0, event(eq=1, ql=n), f"{NOW_MS}-{n + 1}")
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None))
    assert counts(content) == (30, 0, 30)
    assert content.rows is not None
    assert content.rows.gauge_last["depth"].tolist() == [2949]
    assert content.rows.events.tolist() == [10 + 20 * 50]


def test_packed_and_single_entries_of_the_emitter_give_the_same_points(
    stream_url: str, redis: Redis, connection: RawConnection
) -> None:
    now_ms = int(time.time() * 1000)

    async def emit_and_read(min_events_to_pack: int) -> RangeContent:
        redis.flushdb()
        emitter = Emitter(stream_url, buffer=10_000, min_events_to_pack=min_events_to_pack)
        for n in range(3_000):
            kinds: list[dict[str, str | int]] = [
                {"eq": n % 5, "ql": n},
                {"dq": 1, "wt": f"{n % 50},{n}", "cc": n % 9, "group": "g"},
                {"eq": -1},
                {"ak": n, "age": n % 7 - 3, "cl": 10**14},
            ]
            fields: dict[str, str | int] = {"rt": n, "eq": "some", "ak": 1} if n % 50 == 3 else kinds[n % 4]
            emitter.emit(QUEUE, event(f"q{n % 40}", t=now_ms + 7 * n, **fields), shard_key="one")
        emitter.start()
        await emitter.stop(20)
        assert emitter.emitted == 3_000
        key = QUEUE.stream_keys[shard_of("one", 2)]
        return read_range(connection, QUEUE, StreamRange(0, key, "0-0", "+", 0, None))

    packed = asyncio.run(emit_and_read(min_events_to_pack=8))
    single = asyncio.run(emit_and_read(min_events_to_pack=10**9))
    assert packed.counts.entries < 300 < 3_000 == single.counts.entries
    assert (
        packed.set_aside
        == single.set_aside
        == {RejectionReason.NEGATIVE_COUNT: 750, RejectionReason.NOT_A_NUMBER: 60}
    )
    assert without_ids(packed) == without_ids(single)


def without_ids(content: RangeContent) -> list[tuple[object, ...]]:
    assert content.rows is not None
    rows = content.rows
    columns = [rows.at_ms, rows.events, rows.newest_ms, rows.seen_ms]
    columns += [*rows.counters.values(), *rows.gauge_max.values(), *rows.gauge_last.values()]
    columns += [lists.lengths for lists in rows.samples.values()]
    texts = [dimension.to_pylist() for dimension in rows.dimensions]
    return sorted(zip(*texts, *(column.tolist() for column in columns), strict=True))


def test_large_entries_after_small_ones_are_read_in_smaller_chunks(
    connection: RawConnection, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def record_size(definition: MetricDefinition, buffer: bytearray, begin: int, end: int) -> EntryChunk:
        sizes.append(end - begin)
        return resp_columns.read_xrange_reply(definition, buffer, begin, end)

    monkeypatch.setattr(stream_range, "read_xrange_reply", record_size)
    for n in range(300):
        add(redis, 0, event(eq=1, note="x" * (10 if n < 100 else 1_900)), f"{NOW_MS}-{n + 1}")
    limits = ChunkLimits(first_entries=50, max_bytes=20_000)
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None), limits=limits)
    assert counts(content) == (300, 0, 300)
    assert enqueued(content) == 300
    assert max(sizes) <= 80_000
    assert len(sizes) <= 300 / 10 + 5


def test_entries_that_cannot_be_counted_are_reported_with_an_example(
    connection: RawConnection, redis: Redis
) -> None:
    add(redis, 0, event(eq=1))
    invalid = add(redis, 0, event(eq="lots"))
    add(redis, 0, event(eq="more"))
    content = read_range(connection, QUEUE, StreamRange(0, KEY, "0-0", "+", 0, None))
    assert content.set_aside == {RejectionReason.NOT_A_NUMBER: 2}
    assert content.examples[RejectionReason.NOT_A_NUMBER].startswith(f"{invalid} org=o")
    assert enqueued(content) == 1


def test_an_error_reply_of_redis_is_raised(connection: RawConnection, redis: Redis) -> None:
    redis.set(KEY, "not a stream")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        connection.xrange(KEY, "0-0", "+", 10)
    assert connection.xrange("nothing", "0-0", "+", 10)[1:]
