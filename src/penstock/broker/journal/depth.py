"""How much is in the journal: counted once, then only what came since."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from penstock.broker.journal.journal_file import JournalFile
from penstock.broker.journal.record_format import HEADER_BYTES, Record, decode_header, read_records

_NOTE = struct.Struct("<16sQ")
_BUFFER = 8 << 10  # little is read when the depth is asked for again and again


@dataclass(frozen=True, slots=True)
class JournalDepth:
    records: int
    bytes: int
    oldest_age_s: float


class ReplayNote:
    """How far a replay has come, for whoever asks for the depth. Only a hint: PostgreSQL knows it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, journal_id: UUID, position: int) -> None:
        with self._path.open("r+b", buffering=0) as file:
            file.write(_NOTE.pack(journal_id.bytes, position))

    def read(self, journal_id: UUID) -> int:
        """The position in this journal; its beginning if the note is of another one, or of none."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return HEADER_BYTES
        if len(data) != _NOTE.size:
            return HEADER_BYTES
        noted, position = _NOTE.unpack(data)
        return max(int(position), HEADER_BYTES) if noted == journal_id.bytes else HEADER_BYTES


class DepthGauge:
    def __init__(self, file: JournalFile, note: ReplayNote) -> None:
        self._file = file
        self._note = note
        self._journal_id: UUID | None = None
        self._start = self._end = HEADER_BYTES
        self._records = 0

    def read(self, now_ms: int) -> JournalDepth:
        """What is not replayed yet. Payloads are not looked at."""
        size = self._file.size
        with self._file.reader(_BUFFER) as reader:
            header = decode_header(reader.read(HEADER_BYTES))
            if header is None:
                return JournalDepth(0, 0, 0.0)
            start = min(self._note.read(header.journal_id), size)
            if header.journal_id != self._journal_id or start < self._start or size < self._end:
                self._journal_id = header.journal_id
                self._start = self._end = HEADER_BYTES
                self._records = 0
            count, self._end = _count(reader, self._end, size)
            self._records += count
            replayed, self._start = _count(reader, self._start, start)
            self._records -= replayed
            if self._start >= self._end:
                return JournalDepth(0, 0, 0.0)
            oldest = next(iter(read_records(reader, self._start, self._end, checked=False)))
            since_ms = oldest.time_ms if isinstance(oldest, Record) else now_ms
            return JournalDepth(self._records, self._end - self._start, max(0, now_ms - since_ms) / 1000)


def _count(reader: BinaryIO, start: int, end: int) -> tuple[int, int]:
    """How many records begin between two positions, and where the last whole one ends."""
    count = 0
    for found in read_records(reader, start, end, checked=False):
        if isinstance(found, Record):
            count += 1
        elif found.end >= end:
            break  # being written at this moment
        start = found.end
    return count, start
