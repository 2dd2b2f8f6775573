"""Tests of the stream source, called as Spark calls it."""

from __future__ import annotations

import pickle
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.pipeline.source.batch_rows import combine_range_parts
from penstock.pipeline.source.planning import LAST_SEQUENCE, Offset, last_id
from penstock.pipeline.source.redis_streams import (
    StreamsReader,
    TaskRanges,
    decode_definition,
    encode_definition,
)
from penstock.pipeline.source.stream_range import StreamRange
from penstock.streams.packing import pack
from penstock.streams.positions import Position, write_positions
from tests.integration.pipeline.events import NOW_MS, add, entry_fields, event, fill

START: Offset = {"0": "0-0", "1": "0-0"}


@pytest.fixture
def reader(stream_url: str) -> StreamsReader:
    return StreamsReader(stream_url, QUEUE)


def read(reader: StreamsReader, start: Offset, end: Offset) -> pa.Table:
    """Read a batch as Spark does: pickled tasks, in order."""
    plan = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    unpickled = pickle.loads(pickle.dumps(reader))
    return pa.Table.from_batches([batch for task in plan for batch in unpickled.read(task)])


def ranges_of(reader: StreamsReader, start: Offset, end: Offset) -> list[StreamRange]:
    return [
        stream_range
        for task in reader.partitions(start, end)
        if isinstance(task, TaskRanges)
        for stream_range in task.ranges
    ]


def landing_table(table: pa.Table) -> pa.Table:
    """Return the batch as the sink receives it, with range parts combined."""
    at = pc.cast(table["at_ms"], pa.timestamp("ms", "UTC"))
    return combine_range_parts(QUEUE, table.set_column(table.column_names.index("at_ms"), "at", at))


def points(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["kind"], "point"))


def notes(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    columns = ("kind", "shard", "label", "events", "example")
    return [row for row in table.select(columns).to_pylist() if row["kind"] == kind]


def test_a_decoded_definition_equals_the_encoded_one() -> None:
    assert decode_definition(encode_definition(QUEUE)) == QUEUE


def test_a_new_query_starts_at_the_beginning(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 4)
    assert reader.initialOffset() == reader.initialOffset() == START


def test_a_query_without_checkpoint_starts_at_the_position_of_the_group(
    reader: StreamsReader, redis: Redis
) -> None:
    ids = [add(redis, 0, event(eq=1)) for _ in range(3)]
    write_positions(redis, {QUEUE.stream_keys[0]: Position(ids[1], 2)})
    assert reader.initialOffset() == {"0": ids[1], "1": "0-0"}


def test_without_streams_there_is_nothing_new(reader: StreamsReader) -> None:
    assert reader.latestOffset(START, ReadAllAvailable()) == START
    assert reader.partitions(START, START) == []


def test_a_batch_ends_at_the_newest_entry(reader: StreamsReader, redis: Redis) -> None:
    ids = [add(redis, 1, event(eq=1)) for _ in range(5)]
    end = reader.latestOffset(START, reader.getDefaultReadLimit())
    assert end == {"0": "0-0", "1": ids[-1]}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_the_same_range_gives_the_same_rows_in_another_process(
    reader: StreamsReader, redis: Redis, stream_url: str
) -> None:
    fill(redis, 50)
    end = reader.latestOffset(START, ReadAllAvailable())
    first = read(reader, START, end)
    fill(redis, 50, start=50)
    # A restarted process has the offsets only, and may spread the ranges differently.
    restarted = StreamsReader(stream_url, QUEUE)
    assert len(reader.partitions(START, end)) == 1
    assert len(restarted.partitions(START, end)) == 2
    second = read(restarted, START, end)
    assert points(first).equals(points(second))
    assert points(first).num_rows >= 7


def test_a_large_backlog_is_cut_at_a_bucket_edge(reader: StreamsReader, redis: Redis) -> None:
    for n in range(200):
        add(redis, 0, event(eq=1), f"{NOW_MS + 500 * n}-0")
    end = reader.latestOffset(START, ReadMaxRows(50))
    assert end["0"] == f"{NOW_MS + 20_000 - 1}-{LAST_SEQUENCE}"
    total, start, sizes = 0, START, []
    while (end := reader.latestOffset(start, ReadMaxRows(50))) != start:
        table = read(reader, start, end)
        [position] = notes(table, "position")
        sizes.append(int(position["example"]))
        write_positions(redis, {QUEUE.stream_keys[0]: Position(position["label"], position["events"])})
        total, start = position["events"], end
    assert sum(sizes) == total == 200
    assert max(sizes) <= 60
    assert len(sizes) >= 4


def test_entries_of_one_millisecond_stay_in_one_batch(reader: StreamsReader, redis: Redis) -> None:
    for n in range(100):
        add(redis, 0, event(eq=1), f"{NOW_MS}-{n}")
    end = reader.latestOffset(START, ReadMaxRows(10))
    assert end["0"] == f"{NOW_MS}-99"


def test_a_batch_reports_its_end_and_its_entries(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 11)
    end = reader.latestOffset(START, ReadAllAvailable())
    assert notes(read(reader, START, end), "position") == [
        {"kind": "position", "shard": 0, "label": end["0"], "events": 6, "example": "6"},
        {"kind": "position", "shard": 1, "label": end["1"], "events": 5, "example": "5"},
    ]


def test_trimmed_entries_are_reported_as_lost(reader: StreamsReader, redis: Redis) -> None:
    for _ in range(30):
        add(redis, 0, event(eq=1))
    redis.xtrim(QUEUE.stream_keys[0], maxlen=12, approximate=False)
    end = reader.latestOffset(START, ReadAllAvailable())
    [lost] = notes(read(reader, START, end), "set_aside")
    assert (lost["label"], lost["events"], lost["shard"]) == ("trimmed", 18, 0)


def test_the_interval_of_a_loss_ends_at_the_first_surviving_entry(
    reader: StreamsReader, redis: Redis
) -> None:
    ids = [add(redis, 0, event(eq=1), f"{NOW_MS + 10_000 * n}-0") for n in range(9)]
    start = {"0": ids[1], "1": "0-0"}
    write_positions(redis, {QUEUE.stream_keys[0]: Position(ids[1], 2)})
    redis.xtrim(QUEUE.stream_keys[0], maxlen=4, approximate=False)
    end = reader.latestOffset(start, ReadAllAvailable())
    [lost] = [row for row in read(reader, start, end).to_pylist() if row["kind"] == "set_aside"]
    assert (lost["label"], lost["events"]) == ("trimmed", 3)
    assert (lost["began_ms"], lost["at_ms"]) == (NOW_MS + 10_000 - 1_000, NOW_MS + 50_000)


def test_events_that_a_broker_dropped_are_reported_with_their_interval(
    reader: StreamsReader, redis: Redis
) -> None:
    add(redis, 0, event(eq=1))
    redis.xadd(QUEUE.stream_keys[0], {"lost": 200, "since": NOW_MS - 9_000, "t": NOW_MS - 4_000})
    end = reader.latestOffset(START, ReadAllAvailable())
    [lost] = [row for row in read(reader, START, end).to_pylist() if row["kind"] == "set_aside"]
    assert (lost["label"], lost["events"]) == ("dropped", 200)
    assert (lost["began_ms"], lost["at_ms"]) == (NOW_MS - 9_000, NOW_MS - 4_000)


def test_malformed_entries_are_reported_and_the_others_counted(reader: StreamsReader, redis: Redis) -> None:
    add(redis, 0, event(eq=1))
    add(redis, 0, {"nonsense": "x"})
    add(redis, 0, event(eq="x"))
    end = reader.latestOffset(START, ReadAllAvailable())
    table = read(reader, START, end)
    assert [(note["label"], note["events"]) for note in notes(table, "set_aside")] == [
        ("missing_dimension", 1),
        ("not_a_number", 1),
    ]
    assert sum(table["enqueued"].drop_null().to_pylist()) == 1


def test_a_commit_trims_counted_entries_only(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 2_000)
    end = reader.latestOffset(START, ReadAllAvailable())
    fill(redis, 600)
    reader.commit(end)
    assert all(300 <= redis.xlen(key) <= 600 for key in QUEUE.stream_keys)
    later = reader.latestOffset(end, ReadAllAvailable())
    table = read(reader, end, later)
    assert notes(table, "set_aside") == []
    assert [int(note["example"]) for note in notes(table, "position")] == [300, 300]


def test_a_commit_trims_all_entries_of_a_large_batch(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 30_000)
    reader.commit(reader.latestOffset(START, ReadAllAvailable()))
    assert all(redis.xlen(key) <= 100 for key in QUEUE.stream_keys)


def test_a_drain_ends_at_the_newest_entry_of_its_start(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 10)
    reader.prepareForTriggerAvailableNow()
    fill(redis, 10)
    end = reader.latestOffset(START, ReadAllAvailable())
    assert sum(int(note["example"]) for note in notes(read(reader, START, end), "position")) == 10
    assert reader.latestOffset(end, ReadAllAvailable()) == end


@pytest.fixture
def backlog(redis: Redis) -> Redis:
    """Ninety seconds of entries in one shard, in which two gauges alternate, and one entry in the other."""
    with redis.pipeline(transaction=False) as pipe:
        for n in range(3_000):
            fields = event(f"q{n % 7}", eq=n, wt=f"{n % 3},1", **({"ql": n} if n % 2 else {"cc": n}))
            pipe.xadd(QUEUE.stream_keys[0], entry_fields(fields), id=f"{NOW_MS + 30 * n}-0")
        pipe.xadd(QUEUE.stream_keys[1], entry_fields(event(eq=1)), id=f"{NOW_MS}-0")
        pipe.execute()
    return redis


def sum_points(table: pa.Table) -> list[dict[str, Any]]:
    """Sum the points as ClickHouse does: per dimensions and bucket, the last of a gauge by its id."""
    sums = []
    for key, rows in groupby(
        sorted(points(table).to_pylist(), key=itemgetter("queue", "at_ms")), key=itemgetter("queue", "at_ms")
    ):
        points_of_key = sorted(rows, key=lambda row: row["seen_id"] or 0)
        sums.append(
            {
                "key": key,
                "events": sum(row["events"] for row in points_of_key),
                "enqueued": sum(row["enqueued"] for row in points_of_key),
                "waits": sorted(wait for row in points_of_key for wait in row["wait_ms"]),
                "depth": [row["depth_last"] for row in points_of_key if row["depth_last"] is not None][-1:],
                "running": [row["running_last"] for row in points_of_key if row["running_last"] is not None][
                    -1:
                ],
                "highest": max((row["depth_max"] or 0) for row in points_of_key),
            }
        )
    return sums


@pytest.mark.parametrize("tasks", [2, 3, 8])
def test_several_tasks_read_a_large_range_with_the_same_result(
    backlog: Redis, stream_url: str, tasks: int
) -> None:
    single_task = StreamsReader(stream_url, QUEUE)
    end = single_task.latestOffset(START, ReadAllAvailable())
    unsplit = read(single_task, START, end)
    reader = StreamsReader(stream_url, QUEUE, tasks=tasks, min_part_bytes=10_000)
    split_end = reader.latestOffset(START, ReadAllAvailable())
    assert {shard: last_id(offset) for shard, offset in split_end.items()} == end
    assert len(reader.partitions(START, split_end)) == tasks + 1
    parts = read(reader, START, split_end)
    assert sum_points(parts) == sum_points(unsplit)
    assert len(sum_points(unsplit)) > 100
    by_shard = itemgetter("shard")
    assert sorted(notes(landing_table(parts), "position"), key=by_shard) == notes(unsplit, "position")
    assert reader.latestOffset(split_end, ReadAllAvailable()) == split_end


def test_a_split_batch_has_the_same_ranges_when_it_is_planned_again(backlog: Redis, stream_url: str) -> None:
    first = StreamsReader(stream_url, QUEUE, tasks=3, min_part_bytes=10_000)
    end = first.latestOffset(START, ReadMaxRows(2_000))
    ids = [(r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE), START, end)]
    assert len(ids) == 4
    assert all(int(part_end.split("-")[0]) % 5_000 == 4_999 for _, part_end in ids[:3])
    table = read(StreamsReader(stream_url, QUEUE), START, end)
    # The stream grows and is trimmed, and another process with another number of tasks plans again.
    for _ in range(100):
        add(backlog, 0, event(eq=1))
    assert [(r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE, tasks=9), START, end)] == ids
    assert points(read(StreamsReader(stream_url, QUEUE, tasks=9), START, end)).equals(points(table))
    backlog.xtrim(QUEUE.stream_keys[0], maxlen=1_000, approximate=False)
    assert [(r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE), START, end)] == ids


@pytest.mark.parametrize("max_entries", [2_000, None])
def test_lost_entries_of_a_split_batch_are_reported_once(
    backlog: Redis, stream_url: str, max_entries: int | None
) -> None:
    reader = StreamsReader(stream_url, QUEUE, tasks=4, min_part_bytes=10_000)
    end = reader.latestOffset(START, ReadMaxRows(max_entries) if max_entries else ReadAllAvailable())
    backlog.xtrim(QUEUE.stream_keys[0], maxlen=2_100, approximate=False)
    table = landing_table(read(reader, START, end))
    [lost] = notes(table, "set_aside")
    assert (lost["label"], lost["events"], lost["shard"]) == ("trimmed", 900, 0)
    assert lost["example"].startswith("900 entries after 0-0")
    [position, _] = sorted(notes(table, "position"), key=itemgetter("shard"))
    assert position["label"] == last_id(end["0"])
    assert position["events"] == 900 + int(position["example"])


def test_a_burst_shorter_than_a_bucket_is_split_inside_the_bucket(stream_url: str, redis: Redis) -> None:
    for n in range(200):
        add(redis, 0, event(eq=1), f"{NOW_MS + n}-0")
    reader = StreamsReader(stream_url, QUEUE, tasks=2, min_part_bytes=1_000)
    end = reader.latestOffset(START, ReadAllAvailable())
    assert end["0"] == f"{NOW_MS + 199}-0 {NOW_MS + 98}-{LAST_SEQUENCE}"
    assert sum(read(reader, START, end)["enqueued"].drop_null().to_pylist()) == 200


def test_the_size_of_packed_entries_limits_a_batch(stream_url: str, redis: Redis) -> None:
    for n in range(100):
        events = [(event(f"q{i}", eq=1, ql=i * n), NOW_MS + 5_000 * n) for i in range(256)]
        add(redis, 0, {"p": pack(QUEUE, events) or b""}, f"{NOW_MS + 5_000 * n}-0")
    start, sizes = START, []
    reader = StreamsReader(stream_url, QUEUE, max_bytes=100_000)
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        table = read(reader, start, end)
        [position] = notes(table, "position")
        write_positions(redis, {QUEUE.stream_keys[0]: Position(position["label"], position["events"])})
        sizes.append(sum(table["enqueued"].drop_null().to_pylist()))
        start = end
    assert sum(sizes) == 25_600
    assert len(sizes) >= 3


def test_a_stream_that_was_replaced_is_read_from_its_start(reader: StreamsReader, redis: Redis) -> None:
    for n in range(10):
        add(redis, 0, event(eq=1), f"{NOW_MS}-{n + 1}")
    end = reader.latestOffset(START, ReadAllAvailable())
    redis.flushdb()
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for n in range(3):
        add(redis, 0, event(eq=1), f"{NOW_MS + 1}-{n}")
    table = read(reader, end, reader.latestOffset(end, ReadAllAvailable()))
    assert [(note["events"], note["example"]) for note in notes(table, "position")] == [(3, "3")]
    [replaced] = notes(table, "set_aside")
    assert (replaced["label"], replaced["events"]) == ("stream_replaced", 0)
    assert replaced["example"] == "3 entries where there had been 10"


def test_while_redis_is_unreachable_no_offset_is_new_and_a_batch_waits(open_tmp_path: Path) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    reader = StreamsReader(server.url, QUEUE)
    with running(server), Redis.from_url(server.url) as client:
        fill(client, 10)
        end = reader.latestOffset(START, ReadAllAvailable())
        plan = reader.partitions(START, end)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    [task] = plan
    assert isinstance(task, TaskRanges)
    with running(server):
        assert sum(batch.num_rows for batch in reader.read(task)) > 2
