"""The source's planning, called as Spark calls it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from events import NOW_MS, add, event, fill
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.part import running
from penstock.embedded.ports import any_free_port
from penstock.embedded.valkey import Valkey
from penstock.pipeline.source import LAST_SEQUENCE, Offset, Ranges, StreamsReader, packed, unpacked
from penstock.streams.positions import Position, write_positions

NOTHING: Offset = {"0": "0-0", "1": "0-0"}


@pytest.fixture
def reader(stream_url: str) -> StreamsReader:
    return StreamsReader(stream_url, QUEUE)


def read(reader: StreamsReader, start: Offset, end: Offset) -> pa.Table:
    """A batch as Spark reads it: tasks that travelled, in order."""
    plan = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    traveller = pickle.loads(pickle.dumps(reader))
    return pa.Table.from_batches([batch for task in plan for batch in traveller.read(task)])


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


def test_a_drain_ends_where_it_was_when_it_began(reader: StreamsReader, redis: Redis) -> None:
    fill(redis, 10)
    reader.prepareForTriggerAvailableNow()
    fill(redis, 10)
    end = reader.latestOffset(NOTHING, ReadAllAvailable())
    assert sum(int(note["example"]) for note in notes(read(reader, NOTHING, end), "position")) == 10
    assert reader.latestOffset(end, ReadAllAvailable()) == end


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
