"""Archived events folded again into the rows of a landing table: the Spark part of a rebuild.

A task takes files of one shard in the order of the stream and folds them with the code that folds the stream
itself, so the rows say what the live ones said, only in fewer rows.
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
from penstock.pipeline.archive.archive_files import Files
from penstock.pipeline.archive.event_archive import ArchivedFile, rows_of_table
from penstock.pipeline.source.batch_rows import batch_schema, build_point_batch
from penstock.pipeline.source.fold import fold
from penstock.pipeline.source.redis_streams import decode_definition, encode_definition
from penstock.pipeline.source.rows import Rows, concatenate
from penstock.pipeline.transforms import landing_columns, landing_expressions, landing_rows

TASK_EVENTS = 250_000
READ_ROWS = 50_000
FOLD_AGAIN_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one shard, in the order of the stream, for one task."""

    shard: int
    paths: tuple[str, ...]


def runs_of(files: Sequence[ArchivedFile]) -> list[Run]:
    """The files spread over tasks of about equal size."""
    runs = []
    for shard, some in groupby(sorted(files, key=lambda file: file.order), key=lambda file: file.order[0]):
        paths: list[str] = []
        events = 0
        for file in some:
            paths.append(file.path)
            events += file.rows
            if events >= TASK_EVENTS:
                runs.append(Run(shard, tuple(paths)))
                paths, events = [], 0
        if paths:
            runs.append(Run(shard, tuple(paths)))
    return runs


def landing_table_of(
    session: SparkSession, root: str, definition: MetricDefinition, files: Sequence[ArchivedFile]
) -> pa.Table:
    """The landing rows of the files' events, which have to fit into memory when folded."""
    runs, told = runs_of(files), encode_definition(definition)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from fold_run(root, decode_definition(told), runs[number])

    numbers = session.range(0, len(runs), 1, numPartitions=max(1, len(runs)))
    frame = numbers.mapInArrow(work, batch_schema(definition))
    rows = landing_rows(frame, landing_expressions(definition)).toArrow()
    return rows.filter(pc.equal(rows["kind"], "point")).select(landing_columns(definition))


def fold_run(root: str, definition: MetricDefinition, run: Run) -> Iterator[pa.RecordBatch]:
    """One task's files, folded: as one piece if they fold well, else as several that ClickHouse merges."""
    files, schema = Files(root), to_arrow_schema(batch_schema(definition), timezone="UTC")
    pending: list[Rows] = []

    def folded() -> Rows:
        return fold(concatenate(pending), definition.bucket_ms)

    for path in run.paths:
        with files.open_parquet(path) as parquet:
            for batch in parquet.iter_batches(READ_ROWS):
                rows = rows_of_table(definition, pa.Table.from_batches([batch]))
                pending.append(fold(rows, definition.bucket_ms))
                if sum(map(len, pending)) > FOLD_AGAIN_ROWS:
                    pending = [folded()]
                    if len(pending[0]) > FOLD_AGAIN_ROWS // 2:
                        yield build_point_batch(definition, schema, run.shard, pending.pop())
    if pending:
        yield build_point_batch(definition, schema, run.shard, folded())
