"""Compact the archive: merge the many small files of a day into one file per stream.

The new files are written to a hidden directory next to the day. Then the compaction holds the pipeline for a
moment, links batches that arrived meanwhile into the new directory, and swaps the two directories in one
step. A reader that lists the day sees either the old or the new files, and so every event once. A reader that
had already listed the old files may find one missing and must start again.

If the process is killed at any time, the day is either unchanged or compacted. Leftover directories are
hidden, and the next run removes them.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from redis import Redis

from penstock.errors import ConfigError
from penstock.pipeline.archive.event_archive import (
    ROW_GROUP_ROWS,
    Archive,
    ArchivedFile,
    event_schema,
    open_parquet_writer,
)
from penstock.streams.batch_lock import BatchLock

MAX_FILES_PER_STREAM = 2
"""A day with at most this many files per stream is not compacted."""

OPEN_BATCH_TIMEOUT_S = 45.0
POLL_INTERVAL_S = 0.1
_AT_FDCWD, _EXCHANGE = (-2, 2) if sys.platform == "darwin" else (-100, 2)


@dataclass(frozen=True, slots=True)
class CompactedDay:
    """The result for one day."""

    metric: str
    day: str
    events: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class Compaction:
    """Compacts the days of one metric. The caller holds the lock of the archive."""

    def __init__(
        self, archive: Archive, redis: Redis, *, max_files_per_stream: int = MAX_FILES_PER_STREAM
    ) -> None:
        if not archive.files.is_local:
            raise ConfigError(
                f"Only an archive in a local directory can be compacted, not {archive.files.root_url}"
            )
        self._archive = archive
        self._redis = redis
        self._max_files_per_stream = max_files_per_stream
        self._owner = f"compaction {uuid4()}"

    def run(self, before: date, on_day: Callable[[str], None]) -> list[CompactedDay]:
        """Compact the days before `before`, except those with an open batch; calls `on_day` with each day."""
        self._remove_leftovers()
        results = []
        for day in self._archive.days():
            if day < before:
                on_day(day.isoformat())
                result = self._compact(day)
                if result is not None:
                    results.append(result)
        return results

    def _compact(self, day: date) -> CompactedDay | None:
        batches = self._archive.batches(day)
        files = [file for batch in batches for file in self._archive.files_of(day, batch)]
        if len(files) <= self._max_files_per_stream * self._archive.definition.shards:
            return None
        old, new = Path(self._archive.day_directory(day)), Path(self._archive.directory) / f".new-day={day}"
        new_files = self._write(files, f"{new}/batch=compact-{uuid4()}")
        new_bytes = sum(file.stat().st_size for file in new_files)
        lock = BatchLock(self._redis, self._archive.definition.name, self._owner)
        if not lock.acquire():
            shutil.rmtree(new)
            return None
        try:
            if not self._wait_for_open_batch(lock) or not set(batches) <= set(self._archive.batches(day)):
                shutil.rmtree(new)
                return None
            for batch in set(self._archive.batches(day)) - set(batches):
                _link_files(old / f"batch={batch}", new / f"batch={batch}")
            swap_directories(old, new)
        finally:
            lock.release()
        shutil.rmtree(new)  # holds the old files now
        return CompactedDay(
            self._archive.definition.name,
            day.isoformat(),
            sum(file.rows for file in files),
            len(files),
            len(new_files),
            sum(file.size for file in files),
            new_bytes,
        )

    def _write(self, files: list[ArchivedFile], directory: str) -> list[Path]:
        """Write the events of the files to one file per shard, in the order of the stream."""
        schema, new_files = event_schema(self._archive.definition), []
        ordered = sorted(files, key=lambda file: file.order)
        for _, group in groupby(ordered, key=lambda file: file.order[0]):
            shard_files = list(group)
            shard, milliseconds, sequence = shard_files[0].order
            file = self._archive.files.create_file(
                directory, f"part-{shard}-{milliseconds}-{sequence}.parquet"
            )
            writer = open_parquet_writer(file.stream, schema)
            pending: list[pa.Table] = []
            for old_file in shard_files:
                with self._archive.files.open_parquet(old_file.path) as parquet:
                    for batch in parquet.iter_batches(ROW_GROUP_ROWS):
                        pending.append(_conform_to_schema(pa.Table.from_batches([batch]), schema))
                        if sum(map(len, pending)) >= ROW_GROUP_ROWS:
                            writer.write_table(pa.concat_tables(pending).unify_dictionaries())
                            pending = []
            if pending:
                writer.write_table(pa.concat_tables(pending).unify_dictionaries())
            writer.close()
            file.finish()
            new_files.append(Path(directory) / f"part-{shard}-{milliseconds}-{sequence}.parquet")
        written = sum(self._archive.files.parquet_rows(str(path)) for path in new_files)
        assert written == sum(file.rows for file in files), "An event is missing from the new files."
        return new_files

    def _wait_for_open_batch(self, lock: BatchLock) -> bool:
        """Wait until no batch is open; returns False on timeout."""
        deadline = time.monotonic() + OPEN_BATCH_TIMEOUT_S
        while lock.read_open_batch() is not None:
            if time.monotonic() > deadline:
                return False
            lock.renew()
            time.sleep(POLL_INTERVAL_S)
        return True

    def _remove_leftovers(self) -> None:
        """Remove the directories of a run that was killed, and restore a day that it was about to replace."""
        directory = Path(self._archive.directory)
        for aside in directory.glob(".old-day=*"):
            day = directory / aside.name.removeprefix(".old-")
            if day.exists():
                shutil.rmtree(aside)
            else:
                aside.rename(day)
        for unfinished in directory.glob(".new-day=*"):
            shutil.rmtree(unfinished)


def swap_directories(first: Path, second: Path) -> None:
    """Exchange two directories, atomically where the system supports it."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin" and hasattr(libc, "renameatx_np"):
        failed = libc.renameatx_np(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    else:
        failed = -1
    if failed:
        # Not every file system supports the exchange. Here the first directory is missing for a moment; if
        # the process is killed then, `_remove_leftovers` restores it.
        aside = first.with_name(f".old-{first.name}")
        first.rename(aside)
        second.rename(first)
        aside.rename(second)


def _link_files(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in source.glob("*.parquet"):
        os.link(file, target / file.name)


def _conform_to_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with all columns of the current definition."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
