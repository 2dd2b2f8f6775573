"""Write events to the archive, in the task that reads a range of a stream.

The files of a range appear when the whole range is read. A task that is restarted writes the same files
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.definitions import MetricDefinition
from penstock.pipeline.archive.archive_files import ArchiveFiles, NewFile
from penstock.pipeline.archive.event_archive import (
    DAY_MS,
    REJECTED_DIRECTORY,
    REJECTED_SCHEMA,
    ROW_GROUP_ROWS,
    batch_name,
    event_schema,
    open_parquet_writer,
    raise_unwritable,
    rows_to_table,
)
from penstock.pipeline.source.rows import Rows
from penstock.pipeline.source.stream_range import StreamRange
from penstock.pipeline.task_batch import read_task_batch
from penstock.streams.positions import parse_entry_id
from penstock.streams.wire import RejectedEvent


class RangeWriter:
    """Writes the events of one range, one file per day. The files appear with `finish`."""

    def __init__(self, root: str, definition: MetricDefinition, batch: str, file_suffix: str) -> None:
        self._files = ArchiveFiles(root)
        self._definition = definition
        self._schema = event_schema(definition)
        self._batch = batch
        self._file_suffix = file_suffix
        self._pending: dict[int, list[pa.Table]] = defaultdict(list)
        self._writers: dict[int, tuple[NewFile, pq.ParquetWriter]] = {}
        self._rejected_writers: list[tuple[NewFile, pq.ParquetWriter]] = []

    def write(self, rows: Rows) -> None:
        """Add single events. Calls must be in the order of the stream."""
        table = rows_to_table(self._definition, self._schema, rows)
        days = rows.at_ms // DAY_MS
        if np.any(np.diff(rows.seen_id) < 0):  # packed and single entries are mixed
            order = np.argsort(rows.seen_id, kind="stable")
            table, days = table.take(pa.array(order)), days[order]
        for day in np.unique(days):
            is_only_day = days[0] == day and (days == day).all()
            self._pending[int(day)].append(table if is_only_day else table.filter(pa.array(days == day)))
            if sum(map(len, self._pending[int(day)])) >= ROW_GROUP_ROWS:
                with raise_unwritable():
                    self._flush(int(day))

    def write_rejected(self, events: Sequence[RejectedEvent]) -> None:
        """Add events that are not counted, in a directory of their own, by the day of their entry."""
        by_day: dict[int, list[dict[str, str]]] = defaultdict(list)
        for event in events:
            row = asdict(event) | {"reason": event.reason.value}
            by_day[parse_entry_id(event.entry.partition("#")[0])[0] // DAY_MS].append(row)
        with raise_unwritable():
            for day, rows in by_day.items():
                file = self._create_file(f"{REJECTED_DIRECTORY}/{self._definition.name}", day)
                writer = open_parquet_writer(file.stream, REJECTED_SCHEMA)
                self._rejected_writers.append((file, writer))
                writer.write_table(pa.Table.from_pylist(rows, schema=REJECTED_SCHEMA))

    def finish(self) -> None:
        """Complete the files and give them their names."""
        with raise_unwritable():
            for day in list(self._pending):
                self._flush(day)
            for file, writer in self._all_writers():
                writer.close()
                file.finish()

    def discard(self) -> None:
        """Delete the unfinished files."""
        for file, writer in self._all_writers():
            with suppress(OSError):
                writer.close()
                file.discard()

    def _all_writers(self) -> list[tuple[NewFile, pq.ParquetWriter]]:
        return [*self._writers.values(), *self._rejected_writers]

    def _create_file(self, directory: str, day: int) -> NewFile:
        text = datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()
        batch_directory = f"{self._files.root}/{directory}/day={text}/batch={self._batch}"
        return self._files.create_file(batch_directory, f"part-{self._file_suffix}.parquet")

    def _flush(self, day: int) -> None:
        pending = self._pending.pop(day)
        if day not in self._writers:
            file = self._create_file(self._definition.name, day)
            self._writers[day] = file, open_parquet_writer(file.stream, self._schema)
        table = pa.concat_tables(pending).unify_dictionaries()
        self._writers[day][1].write_table(table, row_group_size=ROW_GROUP_ROWS)


@contextmanager
def archive_range(
    root: str, definition: MetricDefinition, stream_range: StreamRange
) -> Iterator[RangeWriter | None]:
    """Yield the writer that archives the events of one attempt at a range; None without an archive.

    The files appear if the block succeeds. Must run in a task of a streaming query, which knows its batch.
    """
    if not root:
        yield None
        return
    writer = RangeWriter(root, definition, batch_name(*read_task_batch()), stream_range.name)
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
    writer.finish()
