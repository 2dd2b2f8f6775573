"""The archive holds every event once, by its day, whatever happened on the way."""

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
from penstock.pipeline import control, job
from penstock.pipeline.archive import rebuild_fold
from penstock.pipeline.archive.archive_writer import RangeWriter
from penstock.pipeline.archive.event_archive import Archive
from penstock.pipeline.archive.rebuild_fold import Run, fold_run
from penstock.pipeline.source import stream_range
from penstock.pipeline.source.batch_rows import batch_schema, build_point_batch
from penstock.pipeline.source.stream_range import RawConnection, StreamRange, read_range
from penstock.streams.batch_lock import Mark, mark_key, read_mark
from penstock.streams.packing import pack
from penstock.warehouse.clickhouse_client import Warehouse
from tests.integration.pipeline.archive.archive_content import archived, drained
from tests.integration.pipeline.events import event, fill, totals

DAY_MS = 86_400_000


def test_every_event_is_kept_once_by_its_day(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    now = int(time.time() * 1000)
    total = fill(redis, 5_000)  # several replies per stream
    redis.xadd(QUEUE.stream_keys[0], event("late", eq=3, t=now - 2 * DAY_MS, wt="5,7"))
    redis.xadd(QUEUE.stream_keys[1], event("bare", dq=1))
    redis.xadd(QUEUE.stream_keys[1], event("odd", eq="not a number"))
    drained(spark, archiving, redis)
    fill(redis, 100, start=5_000)
    drained(spark, archiving, redis)

    rows = archived(archiving)
    assert len(rows) == 5_102  # and what cannot be counted is not in it
    usual = [row for row in rows if row["queue"].startswith("q")]
    assert sorted(row["enqueued"] for row in usual) == list(range(5_100))
    assert sum(row["enqueued"] for row in usual[:5_000]) == total
    assert all(
        row["depth"] == row["enqueued"] % 5
        and row["wait_ms"] == [row["enqueued"] % 3, row["enqueued"] % 11]
        and (row["running"], row["run_ms"], row["dequeued"], row["group"]) == (None, [], 0, "")
        for row in usual
    )
    [late] = [row for row in rows if row["queue"] == "late"]
    assert late["day"] == f"{datetime.fromtimestamp(late['at_ms'] / 1000, UTC):%Y-%m-%d}"
    assert (late["at_ms"], late["wait_ms"]) == (now - 2 * DAY_MS, [5, 7])
    [bare] = [row for row in rows if row["queue"] == "bare"]
    assert bare["id_ms"] == bare["at_ms"]
    # Spark reads it too, and finds text where the dictionaries were.
    frame = spark.read.parquet(f"{archiving.archive}/queue")
    assert dict(frame.dtypes)["queue"] == "string"
    assert frame.selectExpr("sum(enqueued)").first()[0] == sum(range(5_100)) + 3
    assert totals(warehouse)[2][0] == 5_102


def test_archived_events_fold_into_what_was_counted(
    archiving: Settings, redis: Redis, stream_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_range, "CHUNK_ENTRIES", 7)
    monkeypatch.setattr(rebuild_fold, "READ_ROWS", 10)
    events = [event(f"q{n % 3}", eq=n, wt=f"{n},{n + 1}") | ({"ql": n} if n % 4 else {}) for n in range(120)]
    for n in range(40):  # packed and single ones in turn
        some = events[3 * n : 3 * n + 3]
        together = pack(QUEUE, [(fields, int(time.time() * 1000)) for fields in some])
        for fields in [{"p": together}] if n % 2 else some:
            redis.xadd(QUEUE.stream_keys[0], fields)
    writer = RangeWriter(archiving.archive, QUEUE, "a", "0-0-0")
    connection = RawConnection(stream_url)
    wanted = StreamRange(0, QUEUE.stream_keys[0], "0-0", "+", 0, 80)
    counted = read_range(connection, QUEUE, wanted, writer.keep).rows
    connection.close()
    writer.finish()
    assert counted is not None
    rows = archived(archiving)
    assert [row["enqueued"] for row in rows] == list(range(120))
    schema = to_arrow_schema(batch_schema(QUEUE), timezone="UTC")
    files = Archive(archiving.archive, QUEUE).files_of(date.fromisoformat(rows[0]["day"]), "a")
    run = Run(0, tuple(file.path for file in files))
    [folded] = fold_run(archiving.archive, QUEUE, run)

    def in_order(batch: pa.RecordBatch) -> list[dict[str, object]]:
        made = [row | {"wait_ms": sorted(row["wait_ms"])} for row in batch.to_pylist()]
        return sorted(made, key=lambda row: (row["queue"], row["at_ms"]))

    assert in_order(folded) == in_order(build_point_batch(QUEUE, schema, 0, counted))


def test_a_batch_that_fails_between_archive_and_insert_is_archived_once(
    spark: SparkSession,
    archiving: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = fill(redis, 200)
    seen: list[int] = []
    insert = Warehouse.insert_once

    def fails_once(self: Warehouse, *arguments: object) -> None:
        seen.append(len(archived(archiving)))
        # Left over by an attempt that was divided into other files.
        [day] = Archive(archiving.archive, QUEUE).days()
        place = Path(Archive(archiving.archive, QUEUE).day_place(day))
        if len(seen) == 1:
            [batch] = place.iterdir()
            file = next(batch.glob("*.parquet"))
            (batch / "part-0-7-7.parquet").write_bytes(file.read_bytes())
            raise RuntimeError("power failure")
        insert(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Warehouse, "insert_once", fails_once)
    drained(spark, archiving, redis)
    assert seen == [200, 200]
    assert sum(row["enqueued"] for row in archived(archiving)) == total
    assert [tier[:2] for tier in totals(warehouse)] == [(200, total)] * 3


def test_a_batch_whose_checkpoint_was_given_up_is_taken_out(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    fill(redis, 100)
    drained(spark, archiving, redis)
    mark = read_mark(redis, "queue")
    assert mark is not None
    assert mark.written
    # As if it had been killed before its insert: nothing counted, the group where it was.
    redis.set(mark_key("queue"), Mark(*mark.batch, False).text)
    control.reset(archiving, from_beginning=True)
    held = sum(redis.xlen(key) for key in QUEUE.stream_keys)
    drained(spark, archiving, redis)
    assert len(archived(archiving)) == held


def test_a_batch_that_is_complete_is_not_written_again(
    spark: SparkSession, archiving: Settings, redis: Redis, warehouse: Warehouse
) -> None:
    total = fill(redis, 100)
    drained(spark, archiving, redis)
    # Spark did not get to write down that the batch is done, so it repeats it.
    commits = archiving.home / "pipeline" / "checkpoint" / "queue" / "commits"
    for file in commits.iterdir():
        file.unlink()
    [day] = Archive(archiving.archive, QUEUE).days()
    place = Path(Archive(archiving.archive, QUEUE).day_place(day))
    [batch] = place.iterdir()
    batch.rename(place / "batch=put-together")  # as when days are made compact
    total += fill(redis, 10, start=100)
    drained(spark, archiving, redis)
    assert sum(row["enqueued"] for row in archived(archiving)) == total
    assert len(archived(archiving)) == 110
    assert [tier[:2] for tier in totals(warehouse)] == [(110, total)] * 3


def test_an_archive_that_cannot_be_written_stops_the_pipeline_in_words(
    spark: SparkSession,
    archiving: Settings,
    redis: Redis,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "MOST_FAILURES", 0)
    total = fill(redis, 20)
    Path(archiving.archive).mkdir()
    in_the_way = Path(archiving.archive) / "queue"
    in_the_way.touch()
    with pytest.raises(ComponentFailed, match=r"the archive cannot be written: .*ot a directory"):
        drained(spark, archiving, redis)
    assert totals(warehouse)[0][0] == 0
    in_the_way.unlink()
    drained(spark, archiving, redis)
    assert [tier[:2] for tier in totals(warehouse)] == [(20, total)] * 3
    assert len(archived(archiving)) == 20
