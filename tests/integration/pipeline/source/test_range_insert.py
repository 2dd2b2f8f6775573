"""Tests of tasks that insert the rows of their ranges: a batch that is repeated otherwise counts once."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from redis import Redis

from penstock.definitions import QUEUE
from penstock.pipeline.checkpoint import check_files
from penstock.pipeline.session import register_source
from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink
from penstock.pipeline.source.batch_rows import batch_schema
from penstock.pipeline.source.planning import SMALL_BATCH_ENTRIES, TASK_INSERT_BYTES, Planner
from penstock.pipeline.source.range_insert import to_landing_rows
from penstock.pipeline.source.redis_streams import FORMAT, StreamsReader, encode_definition
from penstock.pipeline.transforms import landing_columns, landing_expressions, landing_rows
from penstock.streams.positions import Position
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.events import fill, totals

EVENTS = 2 * SMALL_BATCH_ENTRIES
START = {"0": "0-0", "1": "0-0"}


class DyingSink(ClickHouseSink):
    """A sink that fails after the inserts of a batch, as a driver does that is killed there."""

    points_in_driver = 0

    def write(self, table: pa.Table, query_id: str, batch_id: int) -> None:
        self.points_in_driver = table["kind"].to_pylist().count("point")
        super().write(table, query_id, batch_id)

    def _read_positions(self, rows: pa.Table) -> dict[str, Position]:
        raise RuntimeError("killed before the batch was finished")


def run_query(
    spark: SparkSession, urls: tuple[str, str], sink: ClickHouseSink, checkpoint: Path, *, tasks_insert: bool
) -> None:
    """Read the streams to their end; a task per core inserts, or the driver does."""
    register_source(spark)
    frame: DataFrame = (
        spark.readStream.format(FORMAT)
        .option("redis_url", urls[0])
        .option("clickhouse_url", urls[1])
        .option("definition", encode_definition(QUEUE))
        .option("tasks", 8 if tasks_insert else 1)
        .option("task_insert_bytes", 0 if tasks_insert else TASK_INSERT_BYTES)
        .load()
    )
    query = (
        frame.writeStream.option("checkpointLocation", f"file://{checkpoint}")
        .foreachBatch(sink)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.mark.parametrize("began_in_tasks", [True, False], ids=["tasks, then driver", "driver, then tasks"])
def test_a_batch_is_repeated_the_way_it_was_begun(
    spark: SparkSession,
    redis: Redis,
    stream_url: str,
    warehouse: Warehouse,
    tmp_path: Path,
    began_in_tasks: bool,
) -> None:
    total, urls, checkpoint = fill(redis, EVENTS), (stream_url, warehouse.url), tmp_path / "checkpoint"
    first = DyingSink(QUEUE, warehouse, redis, threading.Event())
    with pytest.raises(StreamingQueryException, match="killed before"):
        run_query(spark, urls, first, checkpoint, tasks_insert=began_in_tasks)
    assert (first.points_in_driver == 0) is began_in_tasks
    assert totals(warehouse)[0][:2] == (EVENTS, total), "the batch is inserted, and Spark does not know"
    check_files(checkpoint, QUEUE)

    total += fill(redis, 10)
    sink = ClickHouseSink(QUEUE, warehouse, redis, threading.Event())
    run_query(spark, urls, sink, checkpoint, tasks_insert=not began_in_tasks)
    assert [tier[:2] for tier in totals(warehouse)] == [(EVENTS + 10, total)] * 3
    assert sink.state.total_entries == EVENTS + 10
    assert sink.state.freshness is not None


@pytest.mark.parametrize(("task_insert_bytes", "inserts"), [(1, True), (1 << 40, False)])
def test_tasks_insert_the_rows_of_large_batches(redis: Redis, task_insert_bytes: int, inserts: bool) -> None:
    fill(redis, 500)
    planner = Planner(QUEUE, tasks=2, task_insert_bytes=task_insert_bytes)
    end = planner.next_offset(redis, START, None, None)
    ranges = planner.ranges(redis, START, end)
    assert len(ranges) == 2
    assert {stream_range.inserted_by_task for stream_range in ranges} == {inserts}


def test_a_task_inserts_the_rows_that_the_driver_would_insert(
    spark: SparkSession, redis: Redis, stream_url: str
) -> None:
    fill(redis, 500)
    reader = StreamsReader(stream_url, QUEUE)
    end = reader.latestOffset(START, ReadAllAvailable())
    batches = [batch for task in reader.partitions(START, end) for batch in reader.read(task)]
    points = [batch for batch in batches if batch["kind"][0].as_py() == "point"]
    assert len(points) == 2
    schema = to_arrow_schema(batch_schema(QUEUE), timezone="UTC")
    frame = spark.createDataFrame(pa.Table.from_batches(points, schema), schema=batch_schema(QUEUE))
    by_driver = landing_rows(frame, landing_expressions(QUEUE)).toArrow().select(landing_columns(QUEUE))
    by_tasks = pa.concat_tables([to_landing_rows(QUEUE, batch) for batch in points])
    assert by_tasks.to_pylist() == by_driver.to_pylist()
