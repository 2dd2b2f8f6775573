"""A Spark data source whose writer inserts points into ClickHouse, to compare with the pipeline's inserts.

A module of its own, because importing it imports pyspark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.definitions import QUEUE
from penstock.pipeline.batch_inserts import batch_token, divide_rows
from penstock.pipeline.source.batch_rows import POINT_KIND
from penstock.pipeline.source.range_insert import to_landing_rows
from penstock.pipeline.task_batch import read_task_batch
from penstock.warehouse.clickhouse_client import connect
from penstock.warehouse.schema import landing_table

FORMAT = "clickhouse_points"


class ArrowWriter(DataSourceStreamArrowWriter):
    """Inserts the points of a task, one insert per record batch that Spark passes to it.

    The token of an insert names query, batch, partition and record batch.
    """

    def __init__(self, clickhouse_url: str) -> None:
        self._clickhouse_url = clickhouse_url

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        table = landing_table(QUEUE)
        warehouse = connect(self._clickhouse_url)
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        for number, batch in enumerate(iterator):
            points = batch.filter(pa.array([kind == POINT_KIND for kind in batch["kind"].to_pylist()]))
            rows = to_landing_rows(QUEUE, points)
            for chunk, token in divide_rows(
                rows, batch_token(*read_task_batch(), table, f"{partition}-{number}")
            ):
                warehouse.insert_once(table, chunk, token)
        warehouse.close()
        return WriterCommitMessage()


class ArrowWriterSource(DataSource):
    """The data source; its option is `clickhouse_url`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowWriter:
        return ArrowWriter(self.options["clickhouse_url"])


def register(session: SparkSession) -> None:
    """Register the data source. Tasks receive its code, because they cannot import the benchmarks."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    session.dataSource.register(ArrowWriterSource)
