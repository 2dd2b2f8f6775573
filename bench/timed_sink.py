"""The sink of the pipeline with timers. A module of its own, because importing it imports pyspark."""

from __future__ import annotations

import time

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink


class TimedSink(ClickHouseSink):
    """Measures how long batches take to read and fold, and to write."""

    reading_s = 0.0
    writing_s = 0.0

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        started, writing_before_s = time.perf_counter(), self.writing_s
        super().__call__(frame, batch_id)
        self.reading_s += time.perf_counter() - started - (self.writing_s - writing_before_s)

    def write(self, table: pa.Table, query_id: str, batch_id: int) -> None:
        started = time.perf_counter()
        super().write(table, query_id, batch_id)
        self.writing_s += time.perf_counter() - started
