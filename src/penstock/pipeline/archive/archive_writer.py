"""Writing the archive, in the task that reads a range of a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from penstock.definitions import MetricDefinition
from penstock.pipeline.archive.archive_files import Files, NewFile
from penstock.pipeline.archive.event_archive import (
    DAY_MS,
    ROW_GROUP,
    batch_name,
    event_schema,
    events_table,
    parquet_writer,
    telling,
)
from penstock.pipeline.source.rows import Rows
from penstock.pipeline.source.stream_range import StreamRange

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query."""

Keep = Callable[[Rows], None]


class RangeWriter:
    """Writes the events of one range, a file per day. They appear by `finish`."""

    def __init__(self, root: str, definition: MetricDefinition, batch: str, part: str) -> None:
        self._files = Files(root)
        self._definition = definition
        self._schema = event_schema(definition)
        self._batch = batch
        self._part = part
        self._held: dict[int, list[pa.Table]] = defaultdict(list)
        self._writers: dict[int, tuple[NewFile, pq.ParquetWriter]] = {}

    def keep(self, rows: Rows) -> None:
        """Take in single events; those of one call come before those of the next in the stream."""
        table = events_table(self._definition, self._schema, rows)
        days = rows.at_ms // DAY_MS
        if np.any(np.diff(rows.seen_id) < 0):  # packed and single entries side by side
            order = np.argsort(rows.seen_id, kind="stable")
            table, days = table.take(pa.array(order)), days[order]
        for day in np.unique(days):
            whole = days[0] == day and (days == day).all()
            self._held[int(day)].append(table if whole else table.filter(pa.array(days == day)))
            if sum(map(len, self._held[int(day)])) >= ROW_GROUP:
                with telling():
                    self._flush(int(day))

    def finish(self) -> None:
        """Complete the files and give them their names."""
        with telling():
            for day in list(self._held):
                self._flush(day)
            for file, writer in self._writers.values():
                writer.close()
                file.finish()

    def give_up(self) -> None:
        for file, writer in self._writers.values():
            with suppress(OSError):
                writer.close()
                file.give_up()

    def _flush(self, day: int) -> None:
        held = self._held.pop(day)
        if day not in self._writers:
            text = datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()
            place = f"{self._files.root}/{self._definition.name}/day={text}/batch={self._batch}"
            file = self._files.new_file(place, f"part-{self._part}.parquet")
            self._writers[day] = file, parquet_writer(file.stream, self._schema)
        table = pa.concat_tables(held).unify_dictionaries()
        self._writers[day][1].write_table(table, row_group_size=ROW_GROUP)


@contextmanager
def archive_range(
    root: str, definition: MetricDefinition, stream_range: StreamRange
) -> Iterator[Keep | None]:
    """What is to be called with the events of one attempt at a range; None without an archive.

    The files appear if the block ends well. Only a task of a streaming query knows its batch.
    """
    if not root:
        yield None
        return
    writer = RangeWriter(
        root, definition, _batch_of_this_task(), f"{stream_range.shard}-{stream_range.start}"
    )
    try:
        yield writer.keep
    except BaseException:
        writer.give_up()
        raise
    writer.finish()


def _batch_of_this_task() -> str:
    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID) if context else None
    batch_id = context.getLocalProperty(BATCH_ID) if context else None
    assert query_id, "the archive is written by tasks of a streaming query"
    assert batch_id, "the archive is written by tasks of a streaming query"
    return batch_name(query_id, int(batch_id))
