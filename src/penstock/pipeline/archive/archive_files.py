"""Files of the archive, on a disk or wherever Arrow can write: `s3://`, `gs://`, `hdfs://`.

On a file system a file is written under a hidden name, brought to disk and renamed. An object store shows an
object when it is complete, so there it is written under its own name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
from pyarrow import fs

SUFFIX = ".parquet"


class Files:
    """The few operations that the archive needs, under one root."""

    def __init__(self, root: str) -> None:
        self.root_url = root
        if "://" in root:
            # Spark's name for it is not Arrow's.
            self._system, self.root = fs.FileSystem.from_uri(root.replace("s3a://", "s3://", 1))
        else:
            self._system, self.root = fs.LocalFileSystem(), str(Path(root).absolute())
        self.root = self.root.rstrip("/")
        self.local = isinstance(self._system, fs.LocalFileSystem)

    def directories(self, place: str) -> list[str]:
        """The names of the directories in a place that are not hidden; none if it is not there."""
        selector = fs.FileSelector(place, allow_not_found=True)
        return [
            info.base_name
            for info in self._system.get_file_info(selector)
            if info.type == fs.FileType.Directory and info.base_name[0] not in "._"
        ]

    def parquet_files(self, place: str) -> list[tuple[str, int]]:
        """The complete files in a place with their sizes, by name."""
        selector = fs.FileSelector(place, allow_not_found=True)
        found = self._system.get_file_info(selector)
        return sorted(
            (info.path, info.size)
            for info in found
            if info.base_name.endswith(SUFFIX) and info.base_name[0] not in "._"
        )

    def parquet_rows(self, path: str) -> int:
        return int(pq.read_metadata(path, filesystem=self._system).num_rows)

    def open_parquet(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=self._system)

    def new_file(self, place: str, name: str) -> NewFile:
        self._system.create_dir(place, recursive=True)
        return NewFile(self._system, self.local, place, name)

    def remove(self, place: str) -> None:
        """Delete a directory, if it is there."""
        if self._system.get_file_info(place).type == fs.FileType.Directory:
            self._system.delete_dir(place)


class NewFile:
    """A file in the making. `stream` takes its bytes; it is there after `finish`."""

    def __init__(self, system: Any, local: bool, place: str, name: str) -> None:
        self._local = local
        self._path = f"{place}/{name}"
        # Two attempts at one task must not write into each other's file.
        self._written = f"{place}/.{name}.{uuid4().hex}" if local else self._path
        self._system = system
        self.stream: Any = system.open_output_stream(self._written)

    def finish(self) -> None:
        self.stream.close()
        if self._local:
            _bring_to_disk(self._written)
            Path(self._written).replace(self._path)

    def give_up(self) -> None:
        self.stream.close()
        if self._local:
            Path(self._written).unlink(missing_ok=True)


def _bring_to_disk(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
