"""The journal on disk: one file for all broker processes of a machine, changed only under its lock.

The file is never replaced. Emptying truncates it to nothing, and the next record starts it again under a new
id. The holder of the lock sees a file that ends with a complete record: a record that a killed process left
incomplete was never accepted, and it is cut off. Damaged bytes in the middle are copied to a file of their
own and skipped. Everything here blocks, so it runs in threads; only `flag` is for the event loop.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from penstock.broker.journal.record_format import (
    HEADER_BYTES,
    VERSION,
    Gap,
    decode_header,
    encode_header,
    read_records,
)
from penstock.errors import JournalFailed
from penstock.ids import new_id
from penstock.private_directories import create_private_directory

logger = logging.getLogger(__name__)

FILE_NAME = "journal"
FLAG_NAME = "has-records"
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """The id and the end of a journal that is not empty."""

    journal_id: UUID
    end: int


@dataclass(frozen=True, slots=True)
class RecordBatch:
    payloads: list[bytes]
    end: int
    """The position after the last record."""


class LockedJournalFile:
    """The file while this process holds its lock. `extent` is None if the file is empty."""

    def __init__(self, file: JournalFile, fd: int, checked: Extent | None) -> None:
        self._file = file
        self._fd = fd
        self.extent = self._repair(checked)
        self._file.flag[0] = self.extent is not None

    @property
    def size(self) -> int:
        return self.extent.end if self.extent else 0

    def write(self, records: bytes) -> None:
        """Append records; they are on disk when this returns. If it raises, the file has not changed."""
        old_size = self.size
        journal_id = self.extent.journal_id if self.extent else new_id()
        data = memoryview(records if self.extent else encode_header(journal_id) + records)
        self._file.flag[0] = True
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            os.fdatasync(self._fd)
            if not old_size:
                self._file.sync_directory()
        except OSError:
            # The caller reports these records as not accepted, so no replay may find them.
            os.ftruncate(self._fd, old_size)
            self._file.flag[0] = old_size > 0
            raise
        self.extent = self._file.checked = Extent(journal_id, old_size + len(data))

    def sync(self) -> None:
        """Sync records of a process that was killed between its write and its sync."""
        os.fdatasync(self._fd)

    def save_copy(self) -> None:
        """Copy the whole file: it is shorter than the position that was stored for it."""
        with self._reader() as reader:
            journal_id = self.extent.journal_id if self.extent else None
            self._file.save_damaged(reader, Gap(0, self.size, is_torn=False), journal_id)

    def empty(self) -> None:
        """Truncate the file after all its records were stored."""
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self.extent = None
        self._file.flag[0] = False

    def release(self) -> None:
        os.close(self._fd)

    def _repair(self, checked: Extent | None) -> Extent | None:
        """Cut off an incomplete record at the end. The file is known to be intact up to `checked`."""
        size = os.fstat(self._fd).st_size
        if size == 0:
            return None
        header = decode_header(os.pread(self._fd, HEADER_BYTES, 0))
        if header is None:
            if size >= HEADER_BYTES:
                with self._reader() as reader:
                    self._file.save_damaged(reader, Gap(0, size, is_torn=False), None)
            os.ftruncate(self._fd, 0)
            return None
        if header.version != VERSION:
            raise JournalFailed(
                f"{self._file.path} has version {header.version}, and this broker reads version {VERSION}."
                " Start the version of Penstock that wrote it, let it replay the journal, then upgrade."
            )
        intact_end = HEADER_BYTES
        if checked is not None and checked.journal_id == header.journal_id and checked.end <= size:
            intact_end = checked.end
        if intact_end < size:
            with self._reader() as reader:
                [last] = deque(read_records(reader, intact_end, size), maxlen=1)
                if isinstance(last, Gap):
                    self._cut_off(reader, last, header.journal_id)
                    size = last.start
        return Extent(header.journal_id, size)

    def _cut_off(self, reader: BinaryIO, gap: Gap, journal_id: UUID) -> None:
        if gap.is_torn:
            logger.warning(
                "%s ended with %d bytes of an incomplete record: a process was killed while it wrote them."
                " The record was not accepted and is removed.",
                self._file.path,
                gap.end - gap.start,
            )
        else:
            self._file.save_damaged(reader, gap, journal_id)
        os.ftruncate(self._fd, gap.start)
        os.fsync(self._fd)

    @contextmanager
    def _reader(self) -> Iterator[BinaryIO]:
        with open(self._fd, "rb", buffering=_BUFFER_BYTES, closefd=False) as reader:
            yield reader


class JournalFile:
    """The path of the journal and the ways to open it. Creates the directory if it does not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self.checked: Extent | None = None
        """How far the file was intact at the last check; that part is not checked again."""
        create_private_directory(directory)
        _sync_directory(directory.parent)
        self._size_fd = self._open()
        self.flag = _map_flag(directory / FLAG_NAME)
        """Whether the file may hold records of any process: one byte of memory that all processes share.

        It is set before a record is written and cleared after the file is emptied, both under the lock. If a
        process is killed in between, it stays set until the next process that locks the file corrects it.
        """
        if self.size > 0:
            self.flag[0] = True
        self.sync_directory()

    def close(self) -> None:
        os.close(self._size_fd)
        self.flag.close()

    @property
    def size(self) -> int:
        """The current size of the file, whichever process wrote it. Costs one system call."""
        state = os.fstat(self._size_fd)
        if state.st_nlink == 0:  # the file was removed
            removed, self._size_fd = self._size_fd, self._open()
            os.close(removed)
            state = os.fstat(self._size_fd)
        return state.st_size

    def lock(self) -> LockedJournalFile:
        """Wait for the lock of the file and return the locked file."""
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_same_file(fd, self.path):
                    locked = LockedJournalFile(self, fd, self.checked)
                    self.checked = locked.extent
                    return locked
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def read_extent(self) -> Extent | None:
        """Return the extent of the journal, with all records complete and on disk; None if it is empty."""
        locked = self.lock()
        try:
            if locked.extent is not None:
                locked.sync()
            return locked.extent
        finally:
            locked.release()

    def read_batch(self, extent: Extent, start: int, batch_bytes: int) -> RecordBatch:
        """Read about `batch_bytes` of records from a position on. Damaged bytes are saved and skipped."""
        payloads: list[bytes] = []
        end, size_bytes = start, 0
        with self.reader() as reader:
            for entry in read_records(reader, start, extent.end):
                if isinstance(entry, Gap):
                    self.save_damaged(reader, entry, extent.journal_id)
                else:
                    payloads.append(entry.payload)
                    size_bytes += len(entry.payload)
                end = entry.end
                if size_bytes >= batch_bytes:
                    break
        return RecordBatch(payloads, end)

    def reader(self, buffering: int = _BUFFER_BYTES) -> BinaryIO:
        return self.path.open("rb", buffering=buffering)

    def save_damaged(self, reader: BinaryIO, gap: Gap, journal_id: UUID | None) -> None:
        """Copy damaged bytes to a file next to the journal, once, and log an error."""
        target = self.directory / f"{FILE_NAME}.damaged-{journal_id or new_id()}-{gap.start}"
        if target.exists():
            return
        copy = target.with_name(f"{target.name}.part")
        with copy.open("wb") as file:
            reader.seek(gap.start)
            remaining = gap.end - gap.start
            while remaining and (data := reader.read(min(remaining, _BUFFER_BYTES))):
                file.write(data)
                remaining -= len(data)
            file.flush()
            os.fsync(file.fileno())
        copy.rename(target)
        self.sync_directory()
        logger.error(
            "%d bytes of the journal from offset %d are damaged and may be accepted pushes. They are saved in"
            " %s, and the other records are replayed. Check the disk, search that file for missing payloads,"
            " push them again, then remove the file.",
            gap.end - gap.start,
            gap.start,
            target,
        )

    def sync_directory(self) -> None:
        _sync_directory(self.directory)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _map_flag(path: Path) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size == 0:
            os.ftruncate(fd, 1)
        return mmap.mmap(fd, 1)
    finally:
        os.close(fd)


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        at_path = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
