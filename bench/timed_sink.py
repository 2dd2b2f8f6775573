"""The pipeline's sink with a watch: how long its batches read and wrote."""

from __future__ import annotations

import time
from typing import Any

from penstock.pipeline.sink.clickhouse_sink import ClickHouseSink


class TimedSink(ClickHouseSink):
    reading_s = 0.0
    writing_s = 0.0

    def __call__(self, frame: Any, batch_id: int) -> None:
        started, written = time.perf_counter(), self.writing_s
        super().__call__(frame, batch_id)
        self.reading_s += time.perf_counter() - started - (self.writing_s - written)

    def write(self, *arguments: Any) -> None:
        started = time.perf_counter()
        super().write(*arguments)
        self.writing_s += time.perf_counter() - started
