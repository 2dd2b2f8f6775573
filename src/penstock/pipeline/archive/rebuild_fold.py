"""Fold archived events into rows of the landing table: the Spark part of a rebuild.

A task reads files of one shard in the order of the stream and folds them with the code that folds the stream.
So the result equals that of the live rows, with fewer rows. A task that fails is repeated and returns the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.definitions import MetricDefinition
from penstock.pipeline.archive.archive_files import ArchiveFiles
from penstock.pipeline.archive.event_archive import ArchivedFile, table_to_rows
from penstock.pipeline.source.batch_rows import batch_schema, build_point_batch
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.redis_streams import decode_definition, encode_definition
from penstock.pipeline.source.rows import Rows, concatenate
from penstock.pipeline.transforms import landing_columns, landing_expressions, landing_rows

TASK_EVENTS = 250_000
READ_ROWS = 50_000
FOLD_AGAIN_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Files of one shard, in the order of the stream, for one Spark task."""

    shard: int
    paths: tuple[str, ...]


def plan_tasks(files: Sequence[ArchivedFile]) -> list[FoldTask]:
    """Spread the files over tasks of about equal size."""
    tasks = []
    for shard, shard_files in groupby(
        sorted(files, key=lambda file: file.order), key=lambda file: file.order[0]
    ):
        paths: list[str] = []
        events = 0
        for file in shard_files:
            paths.append(file.path)
            events += file.rows
            if events >= TASK_EVENTS:
                tasks.append(FoldTask(shard, tuple(paths)))
                paths, events = [], 0
        if paths:
            tasks.append(FoldTask(shard, tuple(paths)))
    return tasks


def fold_files(
    session: SparkSession, root: str, definition: MetricDefinition, files: Sequence[ArchivedFile]
) -> pa.Table:
    """Return the landing rows of the events in the files. The folded rows must fit into memory."""
    tasks, definition_text = plan_tasks(files), encode_definition(definition)

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from fold_task_files(root, decode_definition(definition_text), tasks[number])

    numbers = session.range(0, len(tasks), 1, numPartitions=max(1, len(tasks)))
    frame = numbers.mapInArrow(run_tasks, batch_schema(definition))
    rows = landing_rows(frame, landing_expressions(definition)).toArrow()
    return rows.filter(pc.equal(rows["kind"], "point")).select(landing_columns(definition))


def fold_task_files(
    root: str, definition: MetricDefinition, task: FoldTask, read_rows: int = READ_ROWS
) -> Iterator[pa.RecordBatch]:
    """Fold the files of one task: into one batch if folding shrinks them, else into several batches.

    ClickHouse merges the batches.
    """
    files, schema = ArchiveFiles(root), to_arrow_schema(batch_schema(definition), timezone="UTC")
    pending: list[Rows] = []

    def fold_pending() -> Rows:
        return fold(concatenate(pending), definition.bucket_ms)

    for path in task.paths:
        with files.open_parquet(path) as parquet:
            for batch in parquet.iter_batches(read_rows):
                rows = table_to_rows(definition, pa.Table.from_batches([batch]))
                pending.append(fold(rows, definition.bucket_ms))
                if sum(map(len, pending)) > FOLD_AGAIN_ROWS:
                    pending = [fold_pending()]
                    if len(pending[0]) > FOLD_AGAIN_ROWS // 2:
                        yield build_point_batch(definition, schema, task.shard, pending.pop())
    if pending:
        yield build_point_batch(definition, schema, task.shard, fold_pending())
