"""The archive: every event as a row of a Parquet file, by day.

`<archive>/<metric>/day=YYYY-MM-DD/batch=<query>-<batch>/part-<shard>-<start>.parquet`; the day is that of the
event's own time in UTC. A row has the dimensions, `at_ms`, the place in the stream (`id_ms`, and in
`id_sequence` the order within it), the counters (0 if absent), the gauges (null if not observed) and the
samples (lists).

Files are written where the events are read, in Spark's tasks, before the batch is inserted. A batch that is
repeated writes its own directory again, so an event is in the archive once. A file appears under its name
when it is complete.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.config import Settings
from penstock.definitions import MetricDefinition
from penstock.errors import ConfigError, PenstockError
from penstock.pipeline.archive.archive_files import Files
from penstock.pipeline.source.digits import Integers
from penstock.pipeline.source.rows import ABSENT, INDEX_BITS, SEQUENCE_BITS, NumberLists, Rows

DAY_MS = 86_400_000
ROW_GROUP = 100_000
"""Rows that are compressed together."""

PLACE_BITS = SEQUENCE_BITS + INDEX_BITS
"""A place in a stream is one number: the id's milliseconds, and these bits for the order within them."""

COMPRESSION = "zstd"
_DAY = re.compile(r"day=\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_PART = re.compile(r"/part-(\d+)-(\d+)-(\d+)\.parquet$")
_DIMENSION = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file of one batch. `rows` are its events."""

    path: str
    batch: str
    rows: int
    size: int

    @property
    def order(self) -> tuple[int, int, int]:
        """The shard, and the id after which the file begins: files of a shard in the order of the stream."""
        named = _PART.search(self.path)
        if named is None:
            raise ConfigError(f"{self.path} was not written by Penstock: take it out of the archive")
        return int(named[1]), int(named[2]), int(named[3])


def event_schema(definition: MetricDefinition) -> pa.Schema:
    """An archived event. Dimensions are written as dictionaries and read as text."""
    return pa.schema(
        [
            *(pa.field(dimension.name, _DIMENSION) for dimension in definition.dimensions),
            *(pa.field(name, pa.int64()) for name in ("at_ms", "id_ms", "id_sequence")),
            *(pa.field(counter.name, pa.int64()) for counter in definition.counters),
            *(pa.field(gauge.name, pa.int64()) for gauge in definition.gauges),
            *(pa.field(sample.name, pa.list_(pa.int64())) for sample in definition.samples),
        ]
    )


def archive_root(settings: Settings) -> str:
    """Where the archive is, the same for every process; empty without one."""
    if not settings.archive or "://" in settings.archive:
        return settings.archive
    return str(Path(settings.archive).expanduser().absolute())


def batch_name(query_id: str, batch_id: int) -> str:
    """A batch's name in the archive: the same when it is repeated, another one with another checkpoint."""
    return f"{query_id}-{batch_id:09}"


def parquet_writer(stream: Any, schema: pa.Schema) -> pq.ParquetWriter:
    # Without Arrow's own schema in it, dimensions are plain text for every reader.
    return pq.ParquetWriter(stream, schema, compression=COMPRESSION, store_schema=False)


class ArchiveInUse(PenstockError):
    code = "archive_in_use"
    title = "Somebody else works on the archive"


class ArchiveUnwritable(PenstockError):
    code = "archive_unwritable"
    title = "The archive cannot be written"


@contextmanager
def telling() -> Iterator[None]:
    """Tell a failure of the archive's files from one of Redis, which is waited for."""
    try:
        yield
    except OSError as error:
        raise ArchiveUnwritable(f"the archive cannot be written: {error}") from error


class Archive:
    """One metric's part of the archive: what there is, by day."""

    def __init__(self, root: str, definition: MetricDefinition) -> None:
        self.files = Files(root)
        self.definition = definition
        self.place = f"{self.files.root}/{definition.name}"

    def days(self) -> list[date]:
        """The days it has something of, in order."""
        names = filter(_DAY.fullmatch, self.files.directories(self.place))
        return sorted(date.fromisoformat(name.removeprefix("day=")) for name in names)

    def day_place(self, day: date) -> str:
        return f"{self.place}/day={day.isoformat()}"

    def batches(self, day: date) -> list[str]:
        """The names of the batches that have events of the day."""
        found = self.files.directories(self.day_place(day))
        return sorted(name.removeprefix("batch=") for name in found if name.startswith("batch="))

    def files_of(self, day: date, batch: str) -> list[ArchivedFile]:
        """A batch's files of one day, in the order of the stream within each shard."""
        place = f"{self.day_place(day)}/batch={batch}"
        return [
            ArchivedFile(path, batch, self.files.parquet_rows(path), size)
            for path, size in self.files.parquet_files(place)
        ]

    @contextmanager
    def alone(self, home: Path) -> Iterator[None]:
        """Be the only one who rebuilds from it or makes it compact. Raises ArchiveInUse.

        The lock is in the archive, or in `home` for an archive that is no directory of this machine.
        """
        place = Path(self.place) if self.files.local else home / "pipeline"
        place.mkdir(parents=True, exist_ok=True)
        with (place / f".{self.definition.name}.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ArchiveInUse(
                    f"a rebuild or compaction works on {self.place} already: wait until it has ended"
                ) from None
            yield

    def remove_batch(self, batch: str) -> None:
        """Take away what a batch has written, if anything."""
        with telling():
            for day in self.days():
                self.files.remove(f"{self.day_place(day)}/batch={batch}")


def events_table(definition: MetricDefinition, schema: pa.Schema, rows: Rows) -> pa.Table:
    """Single events in the archive's form."""
    place, missing = rows.seen_id, rows.seen_id == ABSENT
    columns: dict[str, pa.Array] = {
        "at_ms": pa.array(rows.at_ms),
        "id_ms": pa.array(place >> PLACE_BITS, mask=missing),
        "id_sequence": pa.array(place & ((1 << PLACE_BITS) - 1), mask=missing),
    }
    for dimension, values in zip(definition.dimensions, rows.dimensions, strict=True):
        encoded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        columns[dimension.name] = encoded.cast(_DIMENSION)
    for name, numbers in rows.counters.items():
        columns[name] = pa.array(numbers)
    for name, numbers in rows.gauge_max.items():
        columns[name] = pa.array(numbers, mask=numbers == ABSENT)
    for name, lists in rows.samples.items():
        offsets = np.concatenate(([0], np.cumsum(lists.lengths))).astype(np.int32)
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(lists.values))
    return pa.table([columns[field.name] for field in schema], schema=schema)


def rows_of_table(definition: MetricDefinition, table: pa.Table) -> Rows:
    """The same back. What a file from before a measure was declared lacks is absent."""
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
    seen = np.zeros(count, dtype=np.bool_)
    for column in gauges.values():
        seen |= column != ABSENT
    place = (numbers("id_ms", 0) << PLACE_BITS) + numbers("id_sequence", 0)
    return Rows(
        dimensions=[texts(dimension.name) for dimension in definition.dimensions],
        at_ms=at_ms,
        newest_ms=at_ms,
        events=np.ones(count, dtype=np.int64),
        seen_ms=np.where(seen, at_ms, ABSENT),
        seen_id=np.where(seen, place, ABSENT),
        counters={counter.name: numbers(counter.name, 0) for counter in definition.counters},
        gauge_max=gauges,
        gauge_last=gauges,
        samples={sample.name: lists(sample.name) for sample in definition.samples},
    )
