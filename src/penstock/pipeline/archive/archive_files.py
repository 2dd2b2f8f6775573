"""Read and write the files of the archive, on a local disk or at any URL that Arrow supports (`s3://`, `gs://`).

On a local file system a file is written under a hidden name, synced to disk and renamed. So a restart leaves
no partial file under a final name. An object store shows only complete objects, so there the file is written
under its own name.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

PARQUET_SUFFIX = ".parquet"


class ArchiveFiles:
    """The file operations of the archive, under one root directory or URL."""

    def __init__(self, root: str) -> None:
        self.root_url = root
        if "://" in root:
            # Spark and Arrow use different URL schemes for S3.
            self._system, self.root = fs.FileSystem.from_uri(root.replace("s3a://", "s3://", 1))
        else:
            self._system, self.root = fs.LocalFileSystem(), str(Path(root).absolute())
        self.root = self.root.rstrip("/")
        self.is_local = isinstance(self._system, fs.LocalFileSystem)

    def directories(self, directory: str) -> list[str]:
        """Return the names of the visible directories in a directory; none if it does not exist."""
        selector = fs.FileSelector(directory, allow_not_found=True)
        return [
            info.base_name
            for info in self._system.get_file_info(selector)
            if info.type == fs.FileType.Directory and info.base_name[0] not in "._"
        ]

    def parquet_files(self, directory: str) -> list[tuple[str, int]]:
        """Return the complete files in a directory and their sizes, sorted by name."""
        selector = fs.FileSelector(directory, allow_not_found=True)
        return sorted(
            (info.path, info.size)
            for info in self._system.get_file_info(selector)
            if info.base_name.endswith(PARQUET_SUFFIX) and info.base_name[0] not in "._"
        )

    def parquet_rows(self, path: str) -> int:
        """Return the number of rows of a Parquet file."""
        return int(pq.read_metadata(path, filesystem=self._system).num_rows)

    def open_parquet(self, path: str) -> pq.ParquetFile:
        """Open a Parquet file for reading."""
        return pq.ParquetFile(path, filesystem=self._system)

    def create_file(self, directory: str, name: str) -> NewFile:
        """Open a new file for writing. It appears under its name when `NewFile.finish` is called."""
        self._system.create_dir(directory, recursive=True)
        return NewFile(self._system, self.is_local, directory, name)

    def remove(self, directory: str) -> None:
        """Delete a directory, if it exists."""
        if self._system.get_file_info(directory).type == fs.FileType.Directory:
            self._system.delete_dir(directory)


class NewFile:
    """A file that is being written through `stream`. It appears under its name after `finish`."""

    def __init__(self, system: fs.FileSystem, is_local: bool, directory: str, name: str) -> None:
        self._is_local = is_local
        self._path = f"{directory}/{name}"
        # The random suffix keeps two attempts at one task from writing to the same file.
        self._temporary_path = f"{directory}/.{name}.{uuid4().hex}" if is_local else self._path
        self.stream: pa.NativeFile = system.open_output_stream(self._temporary_path)

    def finish(self) -> None:
        """Complete the file and give it its name."""
        self.stream.close()
        if self._is_local:
            _fsync(self._temporary_path)
            Path(self._temporary_path).replace(self._path)

    def discard(self) -> None:
        """Close and delete the unfinished file."""
        self.stream.close()
        if self._is_local:
            Path(self._temporary_path).unlink(missing_ok=True)


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
