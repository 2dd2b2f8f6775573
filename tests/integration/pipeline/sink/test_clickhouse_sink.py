"""Tests of the sink: a batch counts once, in every tier, however often it is written."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from redis import Redis

from penstock.definitions import QUEUE
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink, StoppingError
from penstock.pipeline.source.batch_rows import batch_schema
from penstock.pipeline.source.redis_streams import StreamsReader
from penstock.pipeline.transforms import NOTE_COLUMNS, landing_columns, landing_expressions, landing_rows
from penstock.streams.positions import read_lag, read_position
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.rejected_events import count_kept
from penstock.warehouse.schema import landing_table
from tests.deadlines import deadline_s
from tests.integration.pipeline.events import add, event, fill, totals
from tests.waiting import wait_until

START = {"0": "0-0", "1": "0-0"}


@pytest.fixture
def sink(warehouse: Warehouse, redis: Redis) -> ClickHouseSink:
    return ClickHouseSink(QUEUE, warehouse, redis, threading.Event())


def read_batch(spark: SparkSession, stream_url: str) -> pa.Table:
    """Return all entries of the streams as the query passes them to the sink."""
    reader = StreamsReader(stream_url, QUEUE)
    end = reader.latestOffset(START, ReadAllAvailable())
    batches = [batch for task in reader.partitions(START, end) for batch in reader.read(task)]
    frame = spark.createDataFrame(pa.Table.from_batches(batches), schema=batch_schema(QUEUE))
    return landing_rows(frame, landing_expressions(QUEUE)).toArrow()


def expected(count: int, total: int) -> list[tuple[int, int, int, int]]:
    waits = sum(number % 3 + number % 11 for number in range(count))
    return [(count, total, 2 * count, waits)] * 3


def test_rows_get_the_columns_and_timestamps_of_the_landing_table(spark: SparkSession) -> None:
    row: dict[str, Any] = dict.fromkeys(batch_schema(QUEUE).fieldNames())
    row |= {
        "kind": "point",
        "shard": 1,
        "queue": "q",
        "at_ms": 1_790_000_003_999,
        "events": 2,
        "wait_ms": [1],
    }
    frame = spark.createDataFrame([row], schema=batch_schema(QUEUE))
    landing = landing_rows(frame, landing_expressions(QUEUE))
    assert landing.columns == [*NOTE_COLUMNS, *landing_columns(QUEUE)]
    [out] = landing.toArrow().to_pylist()
    assert out["at"] == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    assert (out["events"], out["wait_ms"], out["queue"], out["depth_max"]) == (2, [1], "q", None)


def test_the_landing_columns_match_the_landing_table(warehouse: Warehouse) -> None:
    columns = warehouse.query(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "ORDER BY position",
        {"table": landing_table(QUEUE)},
    )
    assert [column["name"] for column in columns] == landing_columns(QUEUE)


def test_only_a_limited_number_of_rejected_events_is_kept(
    spark: SparkSession, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    sink = ClickHouseSink(QUEUE, warehouse, redis, threading.Event(), max_rejected=3)
    for _ in range(5):
        add(redis, 0, event(eq="many"))
    sink.write(read_batch(spark, stream_url), "query", 0)
    sink.write(read_batch(spark, stream_url), "query", 1)
    assert count_kept(warehouse, QUEUE.name) == 3
    assert sink.state.rejected == 5 + 5, "all are counted"


def test_a_batch_written_twice_counts_once_in_every_tier(
    spark: SparkSession, sink: ClickHouseSink, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    total = fill(redis, 500)
    table = read_batch(spark, stream_url)
    for _ in range(3):
        sink.write(table, "query", 7)
    assert totals(warehouse) == expected(500, total)


@pytest.mark.parametrize("other_batch", [("query", 8), ("another query", 7)], ids=["batch", "checkpoint"])
def test_equal_rows_under_another_token_count_again(
    spark: SparkSession,
    sink: ClickHouseSink,
    redis: Redis,
    stream_url: str,
    warehouse: Warehouse,
    other_batch: tuple[str, int],
) -> None:
    total = fill(redis, 500)
    table = read_batch(spark, stream_url)
    sink.write(table, "query", 7)
    sink.write(table, *other_batch)
    assert totals(warehouse) == [tuple(2 * number for number in tier) for tier in expected(500, total)]


def test_inserted_chunks_are_not_counted_again(
    spark: SparkSession,
    redis: Redis,
    stream_url: str,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = ClickHouseSink(QUEUE, warehouse, redis, threading.Event(), chunk_rows=3)
    total = fill(redis, 500)
    table = read_batch(spark, stream_url)
    insert, inserted = warehouse.insert_once, 0

    def fail_at_third_insert(*arguments: Any) -> None:
        nonlocal inserted
        inserted += 1
        if inserted == 3:
            raise KeyboardInterrupt
        insert(*arguments)

    monkeypatch.setattr(warehouse, "insert_once", fail_at_third_insert)
    with pytest.raises(KeyboardInterrupt):
        sink.write(table, "query", 7)
    assert 0 < totals(warehouse)[0][0] < 500
    sink.write(table, "query", 7)
    assert totals(warehouse) == expected(500, total)


def test_the_consumer_group_moves_to_the_end_of_the_batch(
    spark: SparkSession, sink: ClickHouseSink, redis: Redis, stream_url: str
) -> None:
    fill(redis, 20)
    table = read_batch(spark, stream_url)
    fill(redis, 6)
    sink.write(table, "query", 0)
    assert [read_lag(redis, key) for key in QUEUE.stream_keys] == [3, 3]
    assert (sink.state.batch_id, sink.state.entries, sink.state.query_id) == (0, 20, "query")


def test_entries_set_aside_are_stored_with_their_text_and_counted_once(
    spark: SparkSession, sink: ClickHouseSink, redis: Redis, stream_url: str, warehouse: Warehouse
) -> None:
    fill(redis, 10)
    for _ in range(2):
        add(redis, 0, event(eq="many"))
    add(redis, 1, {"x": "y"})
    redis.xtrim(QUEUE.stream_keys[1], maxlen=3, approximate=False)
    now_ms = time.time_ns() // 1_000_000  # ClickHouse drops rows that are older than 31 days
    redis.xadd(QUEUE.stream_keys[0], {"lost": 20, "since": now_ms - 60_000, "t": now_ms})
    table = read_batch(spark, stream_url)
    for _ in range(2):
        sink.write(table, "query", 0)
    rows = warehouse.query("SELECT metric, reason, stream, events, example FROM set_aside ORDER BY reason")
    assert [(row["reason"], row["events"], row["stream"]) for row in rows] == [
        ("dropped", 20, QUEUE.stream_keys[0]),
        ("missing_dimension", 1, QUEUE.stream_keys[1]),
        ("not_a_number", 2, QUEUE.stream_keys[0]),
        ("trimmed", 3, QUEUE.stream_keys[1]),
    ]
    assert rows[2]["example"].endswith("queue=orders eq=many")
    [interval] = warehouse.query(
        "SELECT toUnixTimestamp(began_at) AS begins, toUnixTimestamp(at) AS ends FROM set_aside "
        "WHERE reason = 'dropped'"
    )
    assert (interval["begins"], interval["ends"]) == ((now_ms - 60_000) // 1000, now_ms // 5_000 * 5)
    assert (sink.state.rejected, sink.state.lost) == (3, 23)
    restarted = ClickHouseSink(QUEUE, warehouse, redis, threading.Event())
    restarted.load_totals()
    assert (restarted.state.rejected, restarted.state.lost) == (3, 23)


def test_a_batch_that_waits_for_clickhouse_is_abandoned_on_stop(
    spark: SparkSession, redis: Redis, stream_url: str
) -> None:
    fill(redis, 4)
    table = read_batch(spark, stream_url)
    stopping = threading.Event()
    sink = ClickHouseSink(QUEUE, connect("http://127.0.0.1:9/default"), redis, stopping)
    threading.Timer(0.3, stopping.set).start()
    with pytest.raises(StoppingError):
        sink.write(table, "query", 0)
    assert sink.state.waiting_for == "waiting for ClickHouse"
    assert sink.state.batch_id == -1


def test_a_batch_waits_while_redis_is_read_only(
    spark: SparkSession, redis: Redis, stream_url: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    """A Redis is read-only after a failover, until it becomes the master."""
    fill(redis, 4)
    table = read_batch(spark, stream_url)
    valkey = Valkey(tmp_path, any_free_port())
    with running(valkey), Redis.from_url(valkey.url) as replica:
        replica.replicaof("127.0.0.1", str(any_free_port()))
        sink = ClickHouseSink(QUEUE, warehouse, replica, threading.Event())
        writing = threading.Thread(target=sink.write, args=(table, "failed over", 0))
        writing.start()
        wait_until(lambda: sink.state.waiting_for == "waiting for Redis", 10, "the batch waits")
        replica.replicaof("NO", "ONE")
        writing.join(deadline_s(20))
        assert not writing.is_alive()
        assert sink.state.batch_id == 0
        assert read_position(replica, QUEUE.stream_keys[0]) is not None
