"""Measure how much the journal holds: count its records once, then only those added since."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from penstock.broker.journal.journal_file import JournalFile
from penstock.broker.journal.record_format import HEADER_BYTES, FramedRecord, decode_header, read_records

_PROGRESS = struct.Struct("<16sQ")
_BUFFER_BYTES = 8 << 10  # repeated measurements read little


@dataclass(frozen=True, slots=True)
class JournalDepth:
    """Records that are not replayed yet."""

    records: int
    bytes: int
    oldest_age_s: float
    replayed_bytes: int = 0
    """Size of the records that were replayed. They leave the file with the last one."""


class ReplayProgress:
    """The position of a replay, saved to measure the depth. PostgreSQL holds the authoritative one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, journal_id: UUID, position: int) -> None:
        with self._path.open("r+b", buffering=0) as file:
            file.write(_PROGRESS.pack(journal_id.bytes, position))

    def read(self, journal_id: UUID) -> int:
        """Return the position in this journal; its start if the file is empty or about another journal."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return HEADER_BYTES
        if len(data) != _PROGRESS.size:
            return HEADER_BYTES
        id_bytes, position = _PROGRESS.unpack(data)
        return max(int(position), HEADER_BYTES) if id_bytes == journal_id.bytes else HEADER_BYTES


class DepthGauge:
    """Count the records of a journal file between the replay's position and the end."""

    def __init__(self, file: JournalFile, progress: ReplayProgress) -> None:
        self._file = file
        self._progress = progress
        self._journal_id: UUID | None = None
        self._start = self._end = HEADER_BYTES
        self._records = 0

    def read(self, now_ms: int) -> JournalDepth:
        """Measure the depth without reading payloads."""
        size = self._file.size
        with self._file.reader(_BUFFER_BYTES) as reader:
            header = decode_header(reader.read(HEADER_BYTES))
            if header is None:
                return JournalDepth(0, 0, 0.0)
            start = min(self._progress.read(header.journal_id), size)
            if header.journal_id != self._journal_id or start < self._start or size < self._end:
                self._journal_id = header.journal_id
                self._start = self._end = HEADER_BYTES
                self._records = 0
            added, self._end = _count_records(reader, self._end, size)
            self._records += added
            replayed, self._start = _count_records(reader, self._start, start)
            self._records -= replayed
            replayed_bytes = self._start - HEADER_BYTES
            if self._start >= self._end:
                return JournalDepth(0, 0, 0.0, replayed_bytes)
            oldest = next(iter(read_records(reader, self._start, self._end, with_payloads=False)))
            oldest_ms = oldest.time_ms if isinstance(oldest, FramedRecord) else now_ms
            oldest_age_s = max(0, now_ms - oldest_ms) / 1000
            return JournalDepth(self._records, self._end - self._start, oldest_age_s, replayed_bytes)


def _count_records(reader: BinaryIO, start: int, end: int) -> tuple[int, int]:
    """Count the records between two positions; return also where the last complete one ends."""
    records = 0
    for entry in read_records(reader, start, end, with_payloads=False):
        if isinstance(entry, FramedRecord):
            records += 1
        elif entry.end >= end:
            break  # another process is writing it right now
        start = entry.end
    return records, start
