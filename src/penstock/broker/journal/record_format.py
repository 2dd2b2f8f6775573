"""The journal's bytes: a header that names the journal, then records, each with its own checksum.

    header  magic 8 · version u32 · id 16 · crc32 of these u32
    record  mark 4 · length u32 · crc32 of length, time and payload u32 · time in ms u64 · payload

The mark lets a reader find the next record behind bytes that are none. Numbers are little-endian.
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
MARK = b"\xf5PJ\xff"  # no UTF-8 text contains it

_HEADER = struct.Struct("<8sI16s")
_RECORD = struct.Struct("<4sIIQ")
_SUMMED = struct.Struct("<IQ")
_CRC = struct.Struct("<I")

HEADER_BYTES = _HEADER.size + _CRC.size
RECORD_BYTES = _RECORD.size
"""What a record takes besides its payload."""

_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    journal_id: UUID


@dataclass(frozen=True, slots=True)
class Record:
    start: int
    end: int
    time_ms: int
    payload: bytes
    """Empty where only the place was asked for."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are no record."""

    start: int
    end: int
    torn: bool
    """A record that was begun and not written to its end, as the last thing before `end`."""


def encode_header(journal_id: UUID) -> bytes:
    head = _HEADER.pack(MAGIC, VERSION, journal_id.bytes)
    return head + _CRC.pack(zlib.crc32(head))


def decode_header(data: bytes) -> Header | None:
    """The header; None if these bytes are none."""
    if len(data) < HEADER_BYTES:
        return None
    head = data[: _HEADER.size]
    magic, version, journal_id = _HEADER.unpack(head)
    [crc] = _CRC.unpack_from(data, _HEADER.size)
    if magic != MAGIC or crc != zlib.crc32(head):
        return None
    return Header(version, UUID(bytes=journal_id))


def encode_record(payload: bytes, time_ms: int) -> bytes:
    return _RECORD.pack(MARK, len(payload), _sum(payload, time_ms), time_ms) + payload


def read_records(file: BinaryIO, start: int, end: int, *, checked: bool = True) -> Iterator[Record | Gap]:
    """What lies between two offsets, in order and without holes.

    Not `checked`: payloads are skipped, so that only a record whose frame is damaged is noticed.
    """
    at = start
    while at < end:
        record = _record_at(file, at, end, checked)
        if record is not None:
            yield record
            at = record.end
            continue
        following = _next_record(file, at + 1, end)
        yield Gap(at, end if following is None else following, following is None and _is_short(file, at, end))
        at = end if following is None else following


def _record_at(file: BinaryIO, at: int, end: int, checked: bool) -> Record | None:
    file.seek(at)
    head = file.read(RECORD_BYTES)
    if len(head) < RECORD_BYTES:
        return None
    mark, length, crc, time_ms = _RECORD.unpack(head)
    stop = at + RECORD_BYTES + length
    if mark != MARK or stop > end:
        return None
    if not checked:
        return Record(at, stop, time_ms, b"")
    payload = file.read(length)
    if len(payload) < length or crc != _sum(payload, time_ms):
        return None
    return Record(at, stop, time_ms, payload)


def _next_record(file: BinaryIO, start: int, end: int) -> int | None:
    at = start
    while at < end:
        file.seek(at)
        window = file.read(min(_WINDOW, end - at))
        found = window.find(MARK)
        while found >= 0:
            if _record_at(file, at + found, end, checked=True) is not None:
                return at + found
            found = window.find(MARK, found + 1)
        if len(window) < len(MARK) or at + len(window) >= end:
            return None
        at += len(window) - len(MARK) + 1
    return None


def _is_short(file: BinaryIO, at: int, end: int) -> bool:
    file.seek(at)
    head = file.read(min(RECORD_BYTES, end - at))
    if len(head) < RECORD_BYTES:
        return MARK.startswith(head[: len(MARK)])
    mark, length, _, _ = _RECORD.unpack(head)
    return bool(mark == MARK and at + RECORD_BYTES + length > end)


def _sum(payload: bytes, time_ms: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_SUMMED.pack(len(payload), time_ms)))
