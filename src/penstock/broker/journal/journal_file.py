"""The journal on disk: one file for all broker processes of a machine, changed under its lock alone.

The file is never replaced: emptied, it is cut to nothing, and the next record begins it anew under a new id.
Whoever has the lock sees a file that ends with a whole record: what a killed process left unfinished was
never accepted and is cut off. Bytes in the middle that cannot be read are copied to a file of their own and
passed over. Everything here blocks, so it runs in threads.
"""

from __future__ import annotations

import fcntl
import logging
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

logger = logging.getLogger(__name__)

NAME = "journal"
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """A journal that is not empty: its id, and where it ends."""

    journal_id: UUID
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    payloads: list[bytes]
    end: int
    """The position behind the last of them."""


class HeldFile:
    """The file while this process has its lock. `extent` is None when it is empty."""

    def __init__(self, file: JournalFile, fd: int, known: Extent | None) -> None:
        self._file = file
        self._fd = fd
        self.extent = self._tidy(known)

    @property
    def size(self) -> int:
        return self.extent.end if self.extent else 0

    def write(self, records: bytes) -> None:
        """Append records; on disk when this returns. When it raises, the file is as it was."""
        before = self.size
        journal_id = self.extent.journal_id if self.extent else new_id()
        data = memoryview(records if self.extent else encode_header(journal_id) + records)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            os.fdatasync(self._fd)
            if not before:
                self._file.sync_directory()
        except OSError:
            # Nobody is told that these were accepted, so nobody may find them.
            os.ftruncate(self._fd, before)
            raise
        self.extent = self._file.known = Extent(journal_id, before + len(data))

    def sync(self) -> None:
        """What a process wrote and was killed before it could sync is on disk too."""
        os.fdatasync(self._fd)

    def set_aside(self) -> None:
        """Keep a copy of all of it: it is not what was said to have been taken."""
        with self._reader() as reader:
            journal_id = self.extent.journal_id if self.extent else None
            self._file.set_aside(reader, Gap(0, self.size, torn=False), journal_id)

    def empty(self) -> None:
        """Everything in it was taken."""
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self.extent = None

    def release(self) -> None:
        os.close(self._fd)

    def _tidy(self, known: Extent | None) -> Extent | None:
        """Cut off what is no whole record at the end. Up to `known` the file is known to be in order."""
        size = os.fstat(self._fd).st_size
        if size == 0:
            return None
        header = decode_header(os.pread(self._fd, HEADER_BYTES, 0))
        if header is None:
            if size >= HEADER_BYTES:
                with self._reader() as reader:
                    self._file.set_aside(reader, Gap(0, size, torn=False), None)
            os.ftruncate(self._fd, 0)
            return None
        if header.version != VERSION:
            raise JournalFailed(
                f"{self._file.path} is of version {header.version} and this broker reads version {VERSION}:"
                " start the version of Penstock that wrote it, let it replay, then change versions"
            )
        checked = HEADER_BYTES
        if known is not None and known.journal_id == header.journal_id and known.end <= size:
            checked = known.end
        if checked < size:
            with self._reader() as reader:
                [last] = deque(read_records(reader, checked, size), maxlen=1)
                if isinstance(last, Gap):
                    self._cut(reader, last, header.journal_id)
                    size = last.start
        return Extent(header.journal_id, size)

    def _cut(self, reader: BinaryIO, gap: Gap, journal_id: UUID) -> None:
        if gap.torn:
            logger.warning(
                "%s ended with %d bytes of a record that a process was killed over;"
                " it was not accepted and is cut off",
                self._file.path,
                gap.end - gap.start,
            )
        else:
            self._file.set_aside(reader, gap, journal_id)
        os.ftruncate(self._fd, gap.start)
        os.fsync(self._fd)

    @contextmanager
    def _reader(self) -> Iterator[BinaryIO]:
        with open(self._fd, "rb", buffering=_BUFFER, closefd=False) as reader:
            yield reader


class JournalFile:
    """Where the journal is, and the ways to it. The directory is made if it is not there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / NAME
        self.known: Extent | None = None
        """How far the file was in order when it was last looked at: that much is not checked again."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sync(directory.parent)
        self._watched = self._open()
        self.sync_directory()

    def close(self) -> None:
        os.close(self._watched)

    @property
    def size(self) -> int:
        """What the file holds now, by whichever process; costs a system call."""
        state = os.fstat(self._watched)
        if state.st_nlink == 0:  # somebody removed it
            gone, self._watched = self._watched, self._open()
            os.close(gone)
            state = os.fstat(self._watched)
        return state.st_size

    def hold(self) -> HeldFile:
        """The file, once no other has its lock."""
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_same(fd, self.path):
                    held = HeldFile(self, fd, self.known)
                    self.known = held.extent
                    return held
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def look(self) -> Extent | None:
        """How far the journal goes, all of it whole and on disk; None if it is empty."""
        held = self.hold()
        try:
            if held.extent is not None:
                held.sync()
            return held.extent
        finally:
            held.release()

    def read_batch(self, extent: Extent, start: int, batch_bytes: int) -> Batch:
        """MessageActions from a position on, about so many bytes. What cannot be read is set aside."""
        payloads: list[bytes] = []
        at, size = start, 0
        with self.reader() as reader:
            for found in read_records(reader, start, extent.end):
                if isinstance(found, Gap):
                    self.set_aside(reader, found, extent.journal_id)
                else:
                    payloads.append(found.payload)
                    size += len(found.payload)
                at = found.end
                if size >= batch_bytes:
                    break
        return Batch(payloads, at)

    def reader(self, buffering: int = _BUFFER) -> BinaryIO:
        return self.path.open("rb", buffering=buffering)

    def set_aside(self, reader: BinaryIO, gap: Gap, journal_id: UUID | None) -> None:
        """Copy bytes that cannot be read to a file next to the journal, once, and say so."""
        target = self.directory / f"{NAME}.damaged-{journal_id or new_id()}-{gap.start}"
        if target.exists():
            return
        copy = target.with_name(f"{target.name}.part")
        with copy.open("wb") as file:
            reader.seek(gap.start)
            left = gap.end - gap.start
            while left and (data := reader.read(min(left, _BUFFER))):
                file.write(data)
                left -= len(data)
            file.flush()
            os.fsync(file.fileno())
        copy.rename(target)
        self.sync_directory()
        logger.error(
            "%d bytes of the journal, from %d on, cannot be read and may be accepted pushes. They are"
            " kept in %s, and the rest is replayed. Check the disk; look in that file for payloads that are"
            " missing and push them again; then remove it",
            gap.end - gap.start,
            gap.start,
            target,
        )

    def sync_directory(self) -> None:
        _sync(self.directory)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_same(fd: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
