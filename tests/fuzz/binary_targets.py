"""Fuzz targets of binary formats: stream entries, packs, RESP replies, ClickHouse Native, the journal."""

from __future__ import annotations

import contextlib
import io
import string
import tempfile
from pathlib import Path
from uuid import UUID

import hiredis
import numpy as np
from hypothesis import strategies as st

from penstock.broker.journal.journal_file import JournalFile
from penstock.broker.journal.record_format import (
    HEADER_BYTES,
    RECORD_MARK,
    FramedRecord,
    encode_header,
    encode_record,
    read_records,
)
from penstock.definitions import QUEUE
from penstock.pipeline.source.resp_columns import read_xrange_reply
from penstock.streams.packing import InvalidPackError, pack, unpack
from penstock.streams.wire import Event, LostEvents, RejectedEvent, read_events
from penstock.warehouse.series.native_format import InvalidNativeError, parse_columns
from tests.fuzz.damage import damaged
from tests.fuzz.fuzz_target import FuzzTarget
from tests.unit.pipeline.source import test_resp_columns as resp
from tests.unit.streams.test_packing import EVENTS

PADDING = 8
RESP_TOKENS = (
    b"\r\n",
    b"*",
    b"$",
    b"*2\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b":1\r\n",
    b"$1\r\np\r\n",
    b"*99999999\r\n",
    b"-x",
)


def check_readers_agree(entries: list[resp.Entry]) -> None:
    assert resp.read_as_columns(entries) == resp.read_with_reference(entries)


def check_damaged_reply(reply: bytes) -> None:
    """A reply that Redis would not send is read or refused as such. It never crashes the reader otherwise."""
    padded = b"." * PADDING + reply + b"." * PADDING
    with contextlib.suppress(hiredis.HiredisError, ValueError, TypeError):
        chunk = read_xrange_reply(QUEUE, padded, PADDING, PADDING + len(reply))
        assert chunk.entries <= len(reply)


def check_entry(pairs: list[tuple[bytes, bytes]]) -> None:
    """An entry becomes events, or is set aside with a reason; nothing is raised and nothing vanishes."""
    events = read_events(QUEUE, b"1790000000000-0", pairs)
    assert events, "the entry vanished"
    assert all(isinstance(event, Event | LostEvents | RejectedEvent) for event in events)


def check_pack(payload: bytes) -> None:
    try:
        events = unpack(payload)
    except InvalidPackError:
        return
    assert 0 < len(events) <= 256


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def text(value: str) -> bytes:
    return varint(len(value.encode())) + value.encode()


NATIVE_TYPES = {"UInt8": "u1", "UInt32": "<u4", "UInt64": "<u8", "Int64": "<i8", "Float64": "<f8"}


@st.composite
def native_blocks(draw: st.DrawFn) -> tuple[bytes, dict[str, list[float]]]:
    """Blocks in the Native format, and their columns."""
    types = draw(
        st.dictionaries(
            st.text(string.ascii_letters, min_size=1, max_size=4),
            st.sampled_from([*NATIVE_TYPES]),
            max_size=4,
        )
    )
    encoded, columns = b"", {name: list[float]() for name in types}
    for rows in draw(st.lists(st.integers(0, 5), max_size=3)) if types else []:
        encoded += varint(len(types)) + varint(rows)
        for name, type_name in types.items():
            values = draw(st.lists(st.integers(0, 255), min_size=rows, max_size=rows))
            nulls = draw(st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows))
            encoded += text(name) + text(type_name if nulls is None else f"Nullable({type_name})")
            encoded += b"" if nulls is None else bytes(nulls)
            encoded += np.array(values, NATIVE_TYPES[type_name]).tobytes()
            columns[name] += [
                0 if is_null else v for v, is_null in zip(values, nulls or [False] * rows, strict=True)
            ]
    return encoded, columns if encoded else {}


def check_native(drawn: tuple[bytes, dict[str, list[float]]]) -> None:
    encoded, columns = drawn
    assert {name: column.tolist() for name, column in parse_columns(encoded).items()} == columns


def check_damaged_native(response: bytes) -> None:
    try:
        columns = parse_columns(response)
    except (InvalidNativeError, TypeError):
        return
    assert sum(column.nbytes for column in columns.values()) <= len(response)


@st.composite
def damaged_journals(draw: st.DrawFn) -> tuple[list[bytes], int, int, bytes]:
    """Payloads of records, and a range of the file that other bytes replace."""
    payloads = draw(st.lists(st.one_of(st.binary(max_size=40), st.just(RECORD_MARK * 8)), max_size=8))
    size = HEADER_BYTES + sum(len(encode_record(payload, 1)) for payload in payloads)
    start = draw(st.integers(0, size))
    end = draw(st.integers(start, size))
    garbage = st.one_of(st.binary(max_size=30), st.just(RECORD_MARK), st.just(encode_record(b"x", 1)[:-1]))
    return payloads, start, end, draw(garbage)


def check_journal(drawn: tuple[list[bytes], int, int, bytes]) -> None:
    """Every record outside the damage is read, in order; appends and reads go on behind the damage."""
    payloads, start, end, garbage = drawn
    frames = [encode_record(payload, number) for number, payload in enumerate(payloads)]
    content = encode_header(UUID(int=7)) + b"".join(frames)
    offsets = np.cumsum([HEADER_BYTES, *map(len, frames)]).tolist()
    intact = [
        payload
        for payload, begin, after in zip(payloads, offsets[:-1], offsets[1:], strict=True)
        if after <= start or begin >= end
    ]
    damaged_content = content[:start] + garbage + content[end:]
    with tempfile.TemporaryDirectory() as directory:
        file = JournalFile(Path(directory, "journal"))
        try:
            file.path.write_bytes(damaged_content)
            locked = file.lock()
            is_usable = locked.extent is not None
            locked.write(encode_record(b"last", 99))
            extent = locked.extent
            locked.release()
            assert extent is not None
            batch = file.read_batch(extent, HEADER_BYTES, 1 << 30)
        finally:
            file.close()
    kept = [payload for payload in batch.payloads if payload in intact or payload == b"last"]
    assert batch.payloads[-1] == b"last"
    assert batch.end == extent.end
    if is_usable and start >= HEADER_BYTES:
        assert is_subsequence(intact, kept[:-1]), (intact, batch.payloads)
        read = [
            r
            for r in read_records(io.BytesIO(content), HEADER_BYTES, len(content))
            if isinstance(r, FramedRecord)
        ]
        assert [record.payload for record in read] == payloads


def is_subsequence(wanted: list[bytes], items: list[bytes]) -> bool:
    remaining = iter(items)
    return all(any(item == candidate for candidate in remaining) for item in wanted)


replies = resp.streams().map(lambda entries: resp.encode_reply(entries)[0][PADDING:-PADDING])
fields = st.lists(
    st.one_of(st.tuples(st.binary(max_size=4), st.binary(max_size=12)), st.sampled_from(resp.BASE)),
    max_size=8,
)

TARGETS: list[FuzzTarget] = [
    FuzzTarget("RESP columns, valid replies", resp.streams(), check_readers_agree, 150),
    FuzzTarget("RESP columns, damaged replies", damaged(replies, RESP_TOKENS), check_damaged_reply, 300),
    FuzzTarget("stream entries", st.one_of(fields, resp.pairs, resp.regular_fields), check_entry, 300),
    FuzzTarget("packed entries", damaged(st.just(pack(QUEUE, EVENTS) or b"")), check_pack, 300),
    FuzzTarget("ClickHouse Native, valid", native_blocks(), check_native, 150),
    FuzzTarget(
        "ClickHouse Native, damaged",
        damaged(
            native_blocks().map(lambda drawn: drawn[0]),
            (b"\xff" * 12, b"\x80" * 12, b"Code: 241. DB::Exception"),
        ),
        check_damaged_native,
        300,
    ),
    FuzzTarget("journal file", damaged_journals(), check_journal, 150),
]
