"""Encode and decode the journal file: a header with the journal's id, then records with a checksum each.

    header  magic 8 · version u32 · id 16 · crc32 of these u32
    record  mark 4 · length u32 · crc32 of length, time and payload u32 · time in ms u64 · payload

The mark lets a reader find the next record after damaged bytes. Numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

MAGIC = b"PNSTKJNL"
VERSION = 1
RECORD_MARK = b"\xf5PJ\xff"  # no UTF-8 text contains it

_HEADER = struct.Struct("<8sI16s")
_RECORD = struct.Struct("<4sIIQ")
_CHECKED_FIELDS = struct.Struct("<IQ")
_CRC = struct.Struct("<I")

HEADER_BYTES = _HEADER.size + _CRC.size
RECORD_BYTES = _RECORD.size
"""Size of a record without its payload."""

_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalHeader:
    version: int
    journal_id: UUID


@dataclass(frozen=True, slots=True)
class FramedRecord:
    """A record and its position in the file."""

    start: int
    end: int
    time_ms: int
    payload: bytes
    """Empty if payloads are skipped."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are not a record."""

    start: int
    end: int
    is_torn: bool
    """The gap ends with a record that was not written completely."""


def encode_header(journal_id: UUID) -> bytes:
    fields = _HEADER.pack(MAGIC, VERSION, journal_id.bytes)
    return fields + _CRC.pack(zlib.crc32(fields))


def decode_header(data: bytes) -> JournalHeader | None:
    """Decode the header; None if the bytes are not a header."""
    if len(data) < HEADER_BYTES:
        return None
    fields = data[: _HEADER.size]
    magic, version, journal_id = _HEADER.unpack(fields)
    [crc] = _CRC.unpack_from(data, _HEADER.size)
    if magic != MAGIC or crc != zlib.crc32(fields):
        return None
    return JournalHeader(version, UUID(bytes=journal_id))


def encode_record(payload: bytes, time_ms: int) -> bytes:
    return _RECORD.pack(RECORD_MARK, len(payload), _checksum(payload, time_ms), time_ms) + payload


def read_records(
    file: BinaryIO, start: int, end: int, *, with_payloads: bool = True
) -> Iterator[FramedRecord | Gap]:
    """Read everything between two offsets, in order and without omissions.

    Without payloads, their checksums are not verified: only damage to a record's frame is noticed.
    """
    offset = start
    while offset < end:
        record = _read_record(file, offset, end, with_payloads)
        if record is not None:
            yield record
            offset = record.end
            continue
        next_record = _find_record(file, offset + 1, end)
        if next_record is None:
            yield Gap(offset, end, _is_incomplete(file, offset, end))
            return
        yield Gap(offset, next_record, is_torn=False)
        offset = next_record


def _read_record(file: BinaryIO, offset: int, end: int, with_payload: bool) -> FramedRecord | None:
    file.seek(offset)
    frame = file.read(RECORD_BYTES)
    if len(frame) < RECORD_BYTES:
        return None
    mark, length, crc, time_ms = _RECORD.unpack(frame)
    record_end = offset + RECORD_BYTES + length
    if mark != RECORD_MARK or record_end > end:
        return None
    if not with_payload:
        return FramedRecord(offset, record_end, time_ms, b"")
    payload = file.read(length)
    if len(payload) < length or crc != _checksum(payload, time_ms):
        return None
    return FramedRecord(offset, record_end, time_ms, payload)


def _find_record(file: BinaryIO, start: int, end: int) -> int | None:
    """Return the offset of the first valid record between two offsets."""
    offset = start
    while offset < end:
        file.seek(offset)
        window = file.read(min(_SEARCH_BYTES, end - offset))
        mark = window.find(RECORD_MARK)
        while mark >= 0:
            if _read_record(file, offset + mark, end, with_payload=True) is not None:
                return offset + mark
            mark = window.find(RECORD_MARK, mark + 1)
        if len(window) < len(RECORD_MARK) or offset + len(window) >= end:
            return None
        offset += len(window) - len(RECORD_MARK) + 1
    return None


def _is_incomplete(file: BinaryIO, offset: int, end: int) -> bool:
    """Return True if a record starts at the offset and would end beyond `end`."""
    file.seek(offset)
    frame = file.read(min(RECORD_BYTES, end - offset))
    if len(frame) < RECORD_BYTES:
        return RECORD_MARK.startswith(frame[: len(RECORD_MARK)])
    mark, length, _, _ = _RECORD.unpack(frame)
    return bool(mark == RECORD_MARK and offset + RECORD_BYTES + length > end)


def _checksum(payload: bytes, time_ms: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED_FIELDS.pack(len(payload), time_ms)))
