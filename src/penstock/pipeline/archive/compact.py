"""A day's many small files made into one per stream.

The new files are written beside the day in a hidden directory. Then the pipeline is held back for a moment,
what has come meanwhile is linked into the new directory, and the two directories change places in one step.
A reader that lists the day sees the old files or the new ones, never an event twice or not at all; one that
was reading just then may find a file gone, and has to begin again.

Killed at any moment, it leaves the day as it was or compact. What lies around is hidden, and the next run
takes it away.
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
    ROW_GROUP,
    Archive,
    ArchivedFile,
    event_schema,
    parquet_writer,
)
from penstock.streams.batch_lock import Hold

FEW_FILES = 2
"""Per stream: with so many a day is compact enough."""

PATIENCE_S = 45.0
LOOK_S = 0.1
_AT_FDCWD, _EXCHANGE = (-2, 2) if sys.platform == "darwin" else (-100, 2)


@dataclass(frozen=True, slots=True)
class Compacted:
    metric: str
    day: str
    events: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class Compaction:
    """The compaction of one metric's days. Its user holds the archive's lock."""

    def __init__(self, archive: Archive, redis: Redis) -> None:
        if not archive.files.local:
            raise ConfigError(
                f"only an archive in a directory can be made compact, not {archive.files.root_url}"
            )
        self._archive = archive
        self._redis = redis
        self._owner = f"compaction {uuid4()}"

    def run(self, before: date, tell: Callable[[str], None]) -> list[Compacted]:
        """Make the days before a given one compact that are not; those with a batch under way are left."""
        self._tidy()
        done = []
        for day in self._archive.days():
            if day < before:
                tell(day.isoformat())
                compacted = self._compact(day)
                if compacted is not None:
                    done.append(compacted)
        return done

    def _compact(self, day: date) -> Compacted | None:
        batches = self._archive.batches(day)
        files = [file for batch in batches for file in self._archive.files_of(day, batch)]
        if len(files) <= FEW_FILES * self._archive.definition.shards:
            return None
        old, new = Path(self._archive.day_place(day)), Path(self._archive.place) / f".new-day={day}"
        made = self._write(files, f"{new}/batch=compact-{uuid4()}")
        size = sum(file.stat().st_size for file in made)
        hold = Hold(self._redis, self._archive.definition.name, self._owner)
        if not hold.take():
            shutil.rmtree(new)
            return None
        try:
            if not self._is_quiet(hold) or not set(batches) <= set(self._archive.batches(day)):
                shutil.rmtree(new)
                return None
            for batch in set(self._archive.batches(day)) - set(batches):
                _link_tree(old / f"batch={batch}", new / f"batch={batch}")
            exchange(old, new)
        finally:
            hold.release()
        shutil.rmtree(new)  # which is the old one now
        return Compacted(
            self._archive.definition.name,
            day.isoformat(),
            sum(file.rows for file in files),
            len(files),
            len(made),
            sum(file.size for file in files),
            size,
        )

    def _write(self, files: list[ArchivedFile], place: str) -> list[Path]:
        schema, made = event_schema(self._archive.definition), []
        ordered = sorted(files, key=lambda file: file.order)
        for _, some in groupby(ordered, key=lambda file: file.order[0]):
            of_shard = list(some)
            shard, milliseconds, sequence = of_shard[0].order
            file = self._archive.files.new_file(place, f"part-{shard}-{milliseconds}-{sequence}.parquet")
            writer = parquet_writer(file.stream, schema)
            held: list[pa.Table] = []
            for one in of_shard:
                with self._archive.files.open_parquet(one.path) as parquet:
                    for batch in parquet.iter_batches(ROW_GROUP):
                        held.append(_in_form(pa.Table.from_batches([batch]), schema))
                        if sum(map(len, held)) >= ROW_GROUP:
                            writer.write_table(pa.concat_tables(held).unify_dictionaries())
                            held = []
            if held:
                writer.write_table(pa.concat_tables(held).unify_dictionaries())
            writer.close()
            file.finish()
            made.append(Path(place) / f"part-{shard}-{milliseconds}-{sequence}.parquet")
        written = sum(self._archive.files.parquet_rows(str(path)) for path in made)
        assert written == sum(file.rows for file in files), "every event was written"
        return made

    def _is_quiet(self, hold: Hold) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while hold.open_batch() is not None:
            if time.monotonic() > deadline:
                return False
            hold.renew()
            time.sleep(LOOK_S)
        return True

    def _tidy(self) -> None:
        """Take away what a run that was killed has left, and put back a day it was about to replace."""
        place = Path(self._archive.place)
        for aside in place.glob(".old-day=*"):
            day = place / aside.name.removeprefix(".old-")
            if day.exists():
                shutil.rmtree(aside)
            else:
                aside.rename(day)
        for left in place.glob(".new-day=*"):
            shutil.rmtree(left)


def exchange(one: Path, other: Path) -> None:
    """Let two directories change places, in one step where the system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(libc, "renameatx_np"):
        failed = libc.renameatx_np(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    else:
        failed = -1
    if failed:
        # Not every file system can. For a moment there is neither; `_tidy` mends it should that be the last.
        aside = one.with_name(f".old-{one.name}")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)


def _link_tree(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in source.glob("*.parquet"):
        os.link(file, target / file.name)


def _in_form(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns that are declared today."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
