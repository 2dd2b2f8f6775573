"""The source's planning, called as Spark calls it."""

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
from penstock.pipeline.source import planning
from penstock.pipeline.source.batch_rows import settled
from penstock.pipeline.source.planning import LAST_SEQUENCE, Offset, last_id
from penstock.pipeline.source.redis_streams import Ranges, StreamsReader, packed, unpacked
from penstock.pipeline.source.stream_range import StreamRange
from penstock.streams.packing import pack
from penstock.streams.positions import Position, write_positions
from tests.integration.pipeline.events import NOW_MS, add, event, fill

NOTHING: Offset = {"0": "0-0", "1": "0-0"}


@pytest.fixture
def reader(stream_url: str) -> StreamsReader:
    return StreamsReader(stream_url, QUEUE)


def read(reader: StreamsReader, start: Offset, end: Offset) -> pa.Table:
    """A batch as Spark reads it: tasks that travelled, in order."""
    plan = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    traveller = pickle.loads(pickle.dumps(reader))
    return pa.Table.from_batches([batch for task in plan for batch in traveller.read(task)])


def ranges_of(reader: StreamsReader, start: Offset, end: Offset) -> list[StreamRange]:
    return [
        wanted for task in reader.partitions(start, end) if isinstance(task, Ranges) for wanted in task.ranges
    ]


def landed(table: pa.Table) -> pa.Table:
    """A batch as the sink has it, before it looks at it."""
    at = pc.cast(table["at_ms"], pa.timestamp("ms", "UTC"))
    return settled(table.set_column(table.column_names.index("at_ms"), "at", at))


def points(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["kind"], "point"))


def notes(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    wanted = ("kind", "shard", "label", "events", "example")
    return [row for row in table.select(wanted).to_pylist() if row["kind"] == kind]


def test_a_definition_survives_the_journey() -> None:
    assert unpacked(packed(QUEUE)) == QUEUE


def test_a_new_query_starts_at_the_beginning(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 4)
    assert reader.initialOffset() == reader.initialOffset() == NOTHING


def test_a_query_without_checkpoint_goes_on_where_the_group_stands(
    reader: StreamsReader, redis: Redis
) -> None:
    ids = [add(redis, 0, event(eq=1)) for _ in range(3)]
    write_positions(redis, {QUEUE.stream_keys[0]: Position(ids[1], 2)})
    assert reader.initialOffset() == {"0": ids[1], "1": "0-0"}


def test_without_streams_there_is_nothing_new(reader: StreamsReader) -> None:
    assert reader.latestOffset(NOTHING, ReadAllAvailable()) == NOTHING
    assert reader.partitions(NOTHING, NOTHING) == []


def test_a_batch_reaches_to_the_newest_entry(reader: StreamsReader, redis: Redis) -> None:
    ids = [add(redis, 1, event(eq=1)) for _ in range(5)]
    end = reader.latestOffset(NOTHING, reader.getDefaultReadLimit())
    assert end == {"0": "0-0", "1": ids[-1]}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_the_same_range_gives_the_same_rows_in_another_process(
    reader: StreamsReader, redis: Redis, stream_url: str
) -> None:
    fill(redis, 50)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    first = read(reader, NOTHING, end)
    fill(redis, 50, start=50)
    # A restarted process knows nothing but the offsets, and may spread the ranges differently.
    restarted = StreamsReader(stream_url, QUEUE)
    assert len(reader.partitions(NOTHING, end)) == 1
    assert len(restarted.partitions(NOTHING, end)) == 2
    second = read(restarted, NOTHING, end)
    assert points(first).equals(points(second))
    assert points(first).num_rows >= 7


def test_a_large_backlog_is_cut_at_a_buckets_edge(reader: StreamsReader, redis: Redis) -> None:
    for n in range(200):
        add(redis, 0, event(eq=1), f"{NOW_MS + 500 * n}-0")
    end = reader.latestOffset(NOTHING, ReadMaxRows(50))
    assert end["0"] == f"{NOW_MS + 20_000 - 1}-{LAST_SEQUENCE}"
    total, start, sizes = 0, NOTHING, []
    while (end := reader.latestOffset(start, ReadMaxRows(50))) != start:
        table = read(reader, start, end)
        [position] = notes(table, "position")
        sizes.append(int(position["example"]))
        write_positions(redis, {QUEUE.stream_keys[0]: Position(position["label"], position["events"])})
        total, start = position["events"], end
    assert sum(sizes) == total == 200
    assert max(sizes) <= 60
    assert len(sizes) >= 4


def test_many_entries_of_one_moment_stay_together(reader: StreamsReader, redis: Redis) -> None:
    for n in range(100):
        add(redis, 0, event(eq=1), f"{NOW_MS}-{n}")
    end = reader.latestOffset(NOTHING, ReadMaxRows(10))
    assert end["0"] == f"{NOW_MS}-99"


def test_a_batch_tells_where_it_ended_and_how_much_it_read(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 11)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    assert notes(read(reader, NOTHING, end), "position") == [
        {"kind": "position", "shard": 0, "label": end["0"], "events": 6, "example": "6"},
        {"kind": "position", "shard": 1, "label": end["1"], "events": 5, "example": "5"},
    ]


def test_trimmed_entries_are_told_as_lost(reader: StreamsReader, redis: Redis) -> None:
    for _ in range(30):
        add(redis, 0, event(eq=1))
    redis.xtrim(QUEUE.stream_keys[0], maxlen=12, approximate=False)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    [lost] = notes(read(reader, NOTHING, end), "set_aside")
    assert (lost["label"], lost["events"], lost["shard"]) == ("trimmed", 18, 0)


def test_malformed_entries_are_told_and_the_others_counted(reader: StreamsReader, redis: Redis) -> None:
    add(redis, 0, event(eq=1))
    add(redis, 0, {"nonsense": "x"})
    add(redis, 0, event(eq="x"))
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    table = read(reader, NOTHING, end)
    assert [(note["label"], note["events"]) for note in notes(table, "set_aside")] == [
        ("missing_dimension", 1),
        ("not_a_number", 1),
    ]
    assert sum(table["enqueued"].drop_null().to_pylist()) == 1


def test_a_commit_frees_what_was_counted_and_nothing_else(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 2_000)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    fill(redis, 600)
    reader.commit(end)
    left = [redis.xlen(key) for key in QUEUE.stream_keys]
    assert all(300 <= length <= 600 for length in left)
    later = reader.latestOffset(end, ReadAllAvailable())
    table = read(reader, end, later)
    assert notes(table, "set_aside") == []
    assert [int(note["example"]) for note in notes(table, "position")] == [300, 300]


def test_a_commit_frees_all_of_a_large_batch(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 30_000)
    reader.commit(reader.latestOffset(NOTHING, ReadAllAvailable()))
    assert all(redis.xlen(key) <= 100 for key in QUEUE.stream_keys)


def test_a_drain_ends_where_it_was_when_it_began(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 10)
    reader.prepareForTriggerAvailableNow()
    fill(redis, 10)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    assert sum(int(note["example"]) for note in notes(read(reader, NOTHING, end), "position")) == 10
    assert reader.latestOffset(end, ReadAllAvailable()) == end


@pytest.fixture
def backlog(redis: Redis) -> Redis:
    """Ninety seconds of one shard, with a second in which gauges change places, and a few of the other."""
    with redis.pipeline(transaction=False) as pipe:
        for n in range(3_000):
            fields = event(f"q{n % 7}", eq=n, wt=f"{n % 3},1", **({"ql": n} if n % 2 else {"cc": n}))
            pipe.xadd(QUEUE.stream_keys[0], fields, id=f"{NOW_MS + 30 * n}-0")
        pipe.xadd(QUEUE.stream_keys[1], event(eq=1), id=f"{NOW_MS}-0")
        pipe.execute()
    return redis


def summed(table: pa.Table) -> list[dict[str, Any]]:
    """Points as ClickHouse sums them up: per dimensions and bucket, the last of a gauge by its place."""
    found = []
    for key, rows in groupby(
        sorted(points(table).to_pylist(), key=itemgetter("queue", "at_ms")), key=itemgetter("queue", "at_ms")
    ):
        some = sorted(rows, key=lambda row: row["seen_id"] or 0)
        found.append(
            {
                "key": key,
                "events": sum(row["events"] for row in some),
                "enqueued": sum(row["enqueued"] for row in some),
                "waits": sorted(wait for row in some for wait in row["wait_ms"]),
                "depth": [row["depth_last"] for row in some if row["depth_last"] is not None][-1:],
                "running": [row["running_last"] for row in some if row["running_last"] is not None][-1:],
                "highest": max((row["depth_max"] or 0) for row in some),
            }
        )
    return found


@pytest.mark.parametrize("tasks", [2, 3, 8])
def test_a_large_range_is_read_by_several_tasks_with_the_same_result(
    backlog: Redis, stream_url: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PIECE_BYTES", 10_000)
    alone = StreamsReader(stream_url, QUEUE)
    end = alone.latestOffset(NOTHING, ReadAllAvailable())
    whole = read(alone, NOTHING, end)
    reader = StreamsReader(stream_url, QUEUE, tasks=tasks)
    divided = reader.latestOffset(NOTHING, ReadAllAvailable())
    assert {shard: last_id(offset) for shard, offset in divided.items()} == end
    assert len(reader.partitions(NOTHING, divided)) == tasks + 1
    parts = read(reader, NOTHING, divided)
    assert summed(parts) == summed(whole)
    assert len(summed(whole)) > 100
    by_shard = itemgetter("shard")
    assert sorted(notes(landed(parts), "position"), key=by_shard) == notes(whole, "position")
    assert reader.latestOffset(divided, ReadAllAvailable()) == divided


def test_a_divided_batch_is_planned_again_as_it_was(
    backlog: Redis, stream_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PIECE_BYTES", 10_000)
    end = StreamsReader(stream_url, QUEUE, tasks=3).latestOffset(NOTHING, ReadMaxRows(2_000))
    ids = [(r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE), NOTHING, end)]
    assert len(ids) == 4
    assert all(int(place.split("-")[0]) % 5_000 == 4_999 for _, place in ids[:3])
    table = read(StreamsReader(stream_url, QUEUE), NOTHING, end)
    # The stream goes on, loses its beginning, and another process with another number of tasks plans again.
    for _ in range(100):
        add(backlog, 0, event(eq=1))
    assert [
        (r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE, tasks=9), NOTHING, end)
    ] == ids
    assert points(read(StreamsReader(stream_url, QUEUE, tasks=9), NOTHING, end)).equals(points(table))
    backlog.xtrim(QUEUE.stream_keys[0], maxlen=1_000, approximate=False)
    assert [(r.start, r.end) for r in ranges_of(StreamsReader(stream_url, QUEUE), NOTHING, end)] == ids


@pytest.mark.parametrize("most", [2_000, None])
def test_what_a_divided_batch_lost_is_told_once(
    backlog: Redis, stream_url: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PIECE_BYTES", 10_000)
    reader = StreamsReader(stream_url, QUEUE, tasks=4)
    end = reader.latestOffset(NOTHING, ReadMaxRows(most) if most else ReadAllAvailable())
    backlog.xtrim(QUEUE.stream_keys[0], maxlen=2_100, approximate=False)
    table = landed(read(reader, NOTHING, end))
    [lost] = notes(table, "set_aside")
    assert (lost["label"], lost["events"], lost["shard"]) == ("trimmed", 900, 0)
    assert lost["example"].startswith("900 entries after 0-0")
    [position, _] = sorted(notes(table, "position"), key=itemgetter("shard"))
    assert position["label"] == last_id(end["0"])
    assert position["events"] == 900 + int(position["example"])


def test_a_burst_shorter_than_a_bucket_is_divided_inside_it(
    stream_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PIECE_BYTES", 1_000)
    for n in range(200):
        add(redis, 0, event(eq=1), f"{NOW_MS + n}-0")
    reader = StreamsReader(stream_url, QUEUE, tasks=2)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    assert end["0"] == f"{NOW_MS + 199}-0 {NOW_MS + 98}-{LAST_SEQUENCE}"
    assert sum(read(reader, NOTHING, end)["enqueued"].drop_null().to_pylist()) == 200


def test_packed_entries_fill_a_batch_by_their_size(
    stream_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_BYTES", 100_000)
    for n in range(100):
        some = [(event(f"q{i}", eq=1, ql=i * n), NOW_MS + 5_000 * n) for i in range(256)]
        add(redis, 0, {"p": pack(QUEUE, some)}, f"{NOW_MS + 5_000 * n}-0")
    start, sizes = NOTHING, []
    reader = StreamsReader(stream_url, QUEUE)
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
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    redis.flushdb()
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for n in range(3):
        add(redis, 0, event(eq=1), f"{NOW_MS + 1}-{n}")
    table = read(reader, end, reader.latestOffset(end, ReadAllAvailable()))
    assert [(note["events"], note["example"]) for note in notes(table, "position")] == [(3, "3")]
    [replaced] = notes(table, "set_aside")
    assert (replaced["label"], replaced["events"]) == ("stream_replaced", 0)
    assert replaced["example"] == "3 entries where there had been 10"


def test_while_redis_is_away_nothing_is_new_and_a_batch_waits(open_tmp_path: Path) -> None:
    server = Valkey(open_tmp_path, any_free_port())
    reader = StreamsReader(server.url, QUEUE)
    with running(server), Redis.from_url(server.url) as client:
        fill(client, 10)
        end = reader.latestOffset(NOTHING, ReadAllAvailable())
        plan = reader.partitions(NOTHING, end)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    [task] = plan
    assert isinstance(task, Ranges)
    with running(server):
        assert sum(batch.num_rows for batch in reader.read(task)) > 2
