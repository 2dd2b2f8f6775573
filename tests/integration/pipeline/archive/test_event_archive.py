"""Tests that the archive holds every event once, by its day, also after failures."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from redis import Redis

from penstock.config import Settings
from penstock.definitions import QUEUE
from penstock.errors import ComponentFailed
from penstock.pipeline import control
from penstock.pipeline.archive.archive_writer import RangeWriter
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.archive.rebuild_fold import FoldTask, fold_task_files
from penstock.pipeline.source.batch_rows import batch_schema, build_point_batch
from penstock.pipeline.source.raw_connection import RawConnection
from penstock.pipeline.source.stream_range import ChunkLimits, StreamRange, read_range
from penstock.streams.batch_lock import BatchMark, batch_mark_key, read_batch_mark
from penstock.streams.packing import pack
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.archive.archive_content import archived_rows, drain
from tests.integration.pipeline.events import add, event, fill, totals

DAY_MS = 86_400_000


def test_every_event_is_archived_once_under_its_day(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    now = int(time.time() * 1000)
    total = fill(redis, 5_000)  # several XRANGE replies per stream
    add(redis, 0, event("late", eq=3, t=now - 2 * DAY_MS, wt="5,7"))
    add(redis, 1, event("bare", dq=1))
    add(redis, 1, event("odd", eq="not a number"))
    drain(spark, archive_settings, redis)
    fill(redis, 100, start=5_000)
    drain(spark, archive_settings, redis)

    rows = archived_rows(archive_settings)
    assert len(rows) == 5_102  # without the event that cannot be counted
    regular = [row for row in rows if row["queue"].startswith("q")]
    assert sorted(row["enqueued"] for row in regular) == list(range(5_100))
    assert sum(row["enqueued"] for row in regular[:5_000]) == total
    assert all(
        row["depth"] == row["enqueued"] % 5
        and row["wait_ms"] == [row["enqueued"] % 3, row["enqueued"] % 11]
        and (row["running"], row["run_ms"], row["dequeued"], row["group"]) == (None, [], 0, "")
        for row in regular
    )
    [late] = [row for row in rows if row["queue"] == "late"]
    assert late["day"] == f"{datetime.fromtimestamp(late['at_ms'] / 1000, UTC):%Y-%m-%d}"
    assert (late["at_ms"], late["wait_ms"]) == (now - 2 * DAY_MS, [5, 7])
    [bare] = [row for row in rows if row["queue"] == "bare"]
    assert bare["id_ms"] == bare["at_ms"]
    # Spark can read the files too, and sees dimensions as text.
    frame = spark.read.parquet(f"{archive_settings.archive}/queue")
    assert dict(frame.dtypes)["queue"] == "string"
    [enqueued] = frame.selectExpr("sum(enqueued)").collect()
    assert enqueued[0] == sum(range(5_100)) + 3
    assert totals(warehouse)[2][0] == 5_102


def test_folding_archived_events_gives_the_rows_of_the_stream(
    archive_settings: Settings, redis: Redis, stream_url: str
) -> None:
    events = [event(f"q{n % 3}", eq=n, wt=f"{n},{n + 1}") | ({"ql": n} if n % 4 else {}) for n in range(120)]
    for n in range(40):  # packed and single entries alternate
        group = events[3 * n : 3 * n + 3]
        if n % 2:
            now_ms = int(time.time() * 1000)
            add(redis, 0, {"p": pack(QUEUE, [(fields, now_ms) for fields in group]) or b""})
        else:
            for fields in group:
                add(redis, 0, fields)
    writer = RangeWriter(archive_settings.archive, QUEUE, "a", "0-0-0")
    connection = RawConnection(stream_url)
    whole_stream = StreamRange(0, QUEUE.stream_keys[0], "0-0", "+", 0, 80)
    limits = ChunkLimits(max_entries=7)
    counted = read_range(connection, QUEUE, whole_stream, writer.write, limits).rows
    connection.close()
    writer.finish()
    assert counted is not None
    rows = archived_rows(archive_settings)
    assert [row["enqueued"] for row in rows] == list(range(120))
    schema = to_arrow_schema(batch_schema(QUEUE), timezone="UTC")
    files = Archive(archive_settings.archive, QUEUE).files_of(date.fromisoformat(rows[0]["day"]), "a")
    task = FoldTask(0, tuple(file.path for file in files))
    [folded] = fold_task_files(archive_settings.archive, QUEUE, task, read_rows=10)

    def in_order(batch: pa.RecordBatch) -> list[dict[str, object]]:
        rows = [row | {"wait_ms": sorted(row["wait_ms"])} for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: (row["queue"], row["at_ms"]))

    assert in_order(folded) == in_order(build_point_batch(QUEUE, schema, 0, counted))


def test_a_batch_that_fails_between_archive_and_insert_is_archived_once(
    spark: SparkSession,
    archive_settings: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = fill(redis, 200)
    archived_counts: list[int] = []
    insert = Warehouse.insert_once

    def fail_first_insert(self: Warehouse, *arguments: object) -> None:
        archived_counts.append(len(archived_rows(archive_settings)))
        # As if an earlier attempt with other range parts had left a file.
        [day] = Archive(archive_settings.archive, QUEUE).days()
        directory = Path(Archive(archive_settings.archive, QUEUE).day_directory(day))
        if len(archived_counts) == 1:
            [batch] = directory.iterdir()
            file = next(batch.glob("*.parquet"))
            (batch / "part-0-7-7.parquet").write_bytes(file.read_bytes())
            raise RuntimeError("power failure")
        insert(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Warehouse, "insert_once", fail_first_insert)
    drain(spark, archive_settings, redis)
    assert archived_counts == [200, 200]
    assert sum(row["enqueued"] for row in archived_rows(archive_settings)) == total
    assert [tier[:2] for tier in totals(warehouse)] == [(200, total)] * 3


def test_an_unfinished_batch_of_a_reset_checkpoint_is_removed(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    fill(redis, 100)
    drain(spark, archive_settings, redis)
    mark = read_batch_mark(redis, "queue")
    assert mark is not None
    assert mark.is_written
    # As if the pipeline had been killed before the insert: nothing counted, the group not moved.
    redis.set(batch_mark_key(redis, "queue"), BatchMark(*mark.batch, False).to_json())
    control.reset(archive_settings, from_beginning=True)
    remaining = sum(redis.xlen(key) for key in QUEUE.stream_keys)
    drain(spark, archive_settings, redis)
    assert len(archived_rows(archive_settings)) == remaining


def test_a_complete_batch_is_not_archived_again(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    total = fill(redis, 100)
    drain(spark, archive_settings, redis)
    # As if Spark had been killed before it committed the batch: it repeats the batch.
    commits = archive_settings.home / "pipeline" / "checkpoint" / "queue" / "commits"
    for file in commits.iterdir():
        file.unlink()
    [day] = Archive(archive_settings.archive, QUEUE).days()
    directory = Path(Archive(archive_settings.archive, QUEUE).day_directory(day))
    [batch] = directory.iterdir()
    batch.rename(directory / "batch=compacted")  # as a compaction does
    total += fill(redis, 10, start=100)
    drain(spark, archive_settings, redis)
    assert sum(row["enqueued"] for row in archived_rows(archive_settings)) == total
    assert len(archived_rows(archive_settings)) == 110
    assert [tier[:2] for tier in totals(warehouse)] == [(110, total)] * 3


def test_an_archive_that_cannot_be_written_stops_the_pipeline_with_an_error(
    spark: SparkSession, archive_settings: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    total = fill(redis, 20)
    Path(archive_settings.archive).mkdir()
    blocking_file = Path(archive_settings.archive) / "queue"
    blocking_file.touch()
    with pytest.raises(ComponentFailed, match=r"The archive cannot be written: .*ot a directory"):
        drain(spark, archive_settings, redis, max_failures=0)
    assert totals(warehouse)[0][0] == 0
    blocking_file.unlink()
    drain(spark, archive_settings, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(20, total)] * 3
    assert len(archived_rows(archive_settings)) == 20
