"""The archive: every event as a row of a Parquet file, by day.

`<archive>/<metric>/day=YYYY-MM-DD/batch=<query>-<batch>/part-<shard>-<start>.parquet`. The day is the UTC day
of the event's own time. A row has the dimensions, `at_ms`, the stream id (`id_ms`, and in `id_sequence` the
order within the millisecond), the counters (0 if absent), the gauges (null if not observed) and the samples
(lists).

Rejected events are in `<archive>/rejected/<metric>/day=…/batch=…`, by the day of their entry, with the reason
and their text. A rebuild does not read them.

Spark's tasks write the files while they read the events, before the batch is inserted. A batch that is
repeated after a restart writes the same directory again, so the archive holds every event once. A file
appears under its name when it is complete.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import ConfigError, PenstockError
from penstock.pipeline.archive.archive_files import ArchiveFiles
from penstock.pipeline.source.digits import Integers
from penstock.pipeline.source.rows import ABSENT, INDEX_BITS, SEQUENCE_BITS, NumberLists, Rows

DAY_MS = 86_400_000
ROW_GROUP_ROWS = 100_000
"""Rows that are compressed together."""

ORDER_BITS = SEQUENCE_BITS + INDEX_BITS
"""Low bits of a sortable id: the order within a millisecond."""

COMPRESSION = "zstd"
REJECTED_DIRECTORY = "rejected"
REJECTED_SCHEMA = pa.schema([(name, pa.string()) for name in ("reason", "entry", "text", "fields")])
_DAY_PATTERN = re.compile(r"day=\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_FILE_PATTERN = re.compile(r"/part-(\d+)-(\d+)-(\d+)\.parquet$")
_DIMENSION_TYPE = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of one batch. `rows` is its number of events."""

    path: str
    batch: str
    rows: int
    size: int

    @property
    def order(self) -> tuple[int, int, int]:
        """The shard and the id after which the file begins; sorts the files of a shard in stream order."""
        match = _FILE_PATTERN.search(self.path)
        if match is None:
            raise ConfigError(f"Penstock did not write {self.path}. Remove it from the archive")
        return int(match[1]), int(match[2]), int(match[3])


def event_schema(definition: MetricDefinition) -> pa.Schema:
    """Return the schema of an archived event. Dimensions are written as dictionaries and read as text."""
    return pa.schema(
        [
            *(pa.field(dimension.name, _DIMENSION_TYPE) for dimension in definition.dimensions),
            *(pa.field(name, pa.int64()) for name in ("at_ms", "id_ms", "id_sequence")),
            *(pa.field(counter.name, pa.int64()) for counter in definition.counters),
            *(pa.field(gauge.name, pa.int64()) for gauge in definition.gauges),
            *(pa.field(sample.name, pa.list_(pa.int64())) for sample in definition.samples),
        ]
    )


def archive_root(settings: Settings) -> str:
    """Return the absolute path or URL of the archive; empty if there is none."""
    if not settings.archive or "://" in settings.archive:
        return settings.archive
    return str(Path(settings.archive).expanduser().absolute())


def batch_name(query_id: str, batch_id: int) -> str:
    """Return the name of a batch in the archive. It stays the same after a restart, but not after a reset."""
    return f"{query_id}-{batch_id:09}"


def open_parquet_writer(stream: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer with the compression of the archive."""
    # The file does not contain the Arrow schema, so every reader sees dimensions as plain text.
    return pq.ParquetWriter(stream, schema, compression=COMPRESSION, store_schema=False)


class ArchiveInUse(PenstockError):
    """Another rebuild or compaction holds the lock of the archive."""

    code = "archive_in_use"
    title = "Archive in use"


class ArchiveUnwritable(PenstockError):
    """A file of the archive cannot be written. Unlike an unreachable Redis, this is not retried."""

    code = "archive_unwritable"
    title = "Archive not writable"


@contextmanager
def raise_unwritable() -> Iterator[None]:
    """Turn OSError into ArchiveUnwritable, so that the source does not wait as for an unreachable Redis."""
    try:
        yield
    except OSError as error:
        raise ArchiveUnwritable(f"The archive cannot be written: {error}") from error


class Archive:
    """The archive of one metric: its files by day and batch."""

    def __init__(self, root: str, definition: MetricDefinition) -> None:
        self.files = ArchiveFiles(root)
        self.definition = definition
        self.directory = f"{self.files.root}/{definition.name}"
        # Not within the directory of the events: programs read that as one table.
        self.rejected_directory = f"{self.files.root}/{REJECTED_DIRECTORY}/{definition.name}"

    def days(self) -> list[date]:
        """Return the days that have events, in order."""
        names = filter(_DAY_PATTERN.fullmatch, self.files.directories(self.directory))
        return sorted(date.fromisoformat(name.removeprefix("day=")) for name in names)

    def day_directory(self, day: date) -> str:
        """Return the directory of a day. It need not exist."""
        return f"{self.directory}/day={day.isoformat()}"

    def batches(self, day: date) -> list[str]:
        """Return the names of the batches that have events of the day."""
        names = self.files.directories(self.day_directory(day))
        return sorted(name.removeprefix("batch=") for name in names if name.startswith("batch="))

    def files_of(self, day: date, batch: str) -> list[ArchivedFile]:
        """Return the files of a batch for one day, in the order of the stream within each shard."""
        directory = f"{self.day_directory(day)}/batch={batch}"
        return [
            ArchivedFile(path, batch, self.files.parquet_rows(path), size)
            for path, size in self.files.parquet_files(directory)
        ]

    @contextmanager
    def exclusive_lock(self, home: Path) -> Iterator[None]:
        """BatchLock the lock for a rebuild or compaction. Raises ArchiveInUse if another process holds it.

        The lock file is in the archive, or in `home` if the archive is not a local directory. The kernel
        releases the lock when the process ends in any way.
        """
        directory = Path(self.directory) if self.files.is_local else home / "pipeline"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f".{self.definition.name}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ArchiveInUse(
                    f"A rebuild or compaction of {self.directory} is running. Wait until it has ended"
                ) from None
            yield

    def remove_batch(self, batch: str) -> None:
        """Delete all files of a batch, if it has any, with those of its rejected events."""
        with raise_unwritable():
            for directory in (self.directory, self.rejected_directory):
                for day in filter(_DAY_PATTERN.fullmatch, self.files.directories(directory)):
                    self.files.remove(f"{directory}/{day}/batch={batch}")


def rows_to_table(definition: MetricDefinition, schema: pa.Schema, rows: Rows) -> pa.Table:
    """Return single events in the schema of the archive."""
    ids, missing = rows.seen_id, rows.seen_id == ABSENT
    columns: dict[str, pa.Array] = {
        "at_ms": pa.array(rows.at_ms),
        "id_ms": pa.array(ids >> ORDER_BITS, mask=missing),
        "id_sequence": pa.array(ids & ((1 << ORDER_BITS) - 1), mask=missing),
    }
    for dimension, values in zip(definition.dimensions, rows.dimensions, strict=True):
        encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        columns[dimension.name] = encoded.cast(_DIMENSION_TYPE)
    for name, numbers in rows.counters.items():
        columns[name] = pa.array(numbers)
    for name, numbers in rows.gauge_max.items():
        columns[name] = pa.array(numbers, mask=numbers == ABSENT)
    for name, lists in rows.samples.items():
        offsets = np.concatenate(([0], np.cumsum(lists.lengths))).astype(np.int32)
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(lists.values))
    return pa.table([columns[field.name] for field in schema], schema=schema)


def table_to_rows(definition: MetricDefinition, table: pa.Table) -> Rows:
    """Return archived events as rows. Measures that an older file does not have are absent."""
    count = table.num_rows

    def numbers(name: str, absent: int) -> Integers:
        if name not in table.column_names:
            return np.full(count, absent, dtype=np.int64)
        filled = table[name].combine_chunks().fill_null(absent)
        return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)

    def texts(name: str) -> pa.Array:
        if name not in table.column_names:
            return pa.repeat("", count)
        return table[name].combine_chunks()

    def lists(name: str) -> NumberLists:
        if name not in table.column_names:
            return NumberLists(np.zeros(count, dtype=np.int64), np.zeros(0, dtype=np.int64))
        column = table[name].combine_chunks()
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return NumberLists(lengths.astype(np.int64), column.flatten().to_numpy(zero_copy_only=False))

    at_ms = numbers("at_ms", 0)
    gauges = {gauge.name: numbers(gauge.name, ABSENT) for gauge in definition.gauges}
    observed = np.zeros(count, dtype=np.bool_)
    for column in gauges.values():
        observed |= column != ABSENT
    ids = (numbers("id_ms", 0) << ORDER_BITS) + numbers("id_sequence", 0)
    return Rows(
        dimensions=[texts(dimension.name) for dimension in definition.dimensions],
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(count, dtype=np.int64),
        seen_ms=np.where(observed, at_ms, ABSENT),
        seen_id=np.where(observed, ids, ABSENT),
        counters={counter.name: numbers(counter.name, 0) for counter in definition.counters},
        gauge_max=gauges,
        gauge_last=gauges,
        samples={sample.name: lists(sample.name) for sample in definition.samples},
    )
