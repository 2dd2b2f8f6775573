"""Answers of numbers, as bytes that ClickHouse would send."""

from __future__ import annotations

import struct

import pytest

from penstock.warehouse.series.native_format import parse_columns


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def block(**of: tuple[str, bytes, int]) -> bytes:
    """Columns by name: type, values as bytes, and how many."""
    rows = next(iter(of.values()))[2]
    length = bytes([rows]) if rows < 0x80 else bytes([rows & 0x7F | 0x80, rows >> 7])
    parts = [text(name) + text(kind) + values for name, (kind, values, _) in of.items()]
    return bytes([len(of)]) + length + b"".join(parts)


def test_every_kind_of_number_is_read_as_it_was_sent() -> None:
    large = (7).to_bytes(8, "little") + bytes(16) + (9).to_bytes(8, "little")
    found = parse_columns(
        block(
            a=("UInt8", bytes([255]), 1),
            b=("UInt32", struct.pack("<I", 2**32 - 1), 1),
            c=("UInt64", struct.pack("<Q", 2**64 - 1), 1),
            d=("Int64", struct.pack("<q", -5), 1),
            e=("Float64", struct.pack("<d", 0.25), 1),
            f=("SimpleAggregateFunction(max, UInt256)", large, 1),
        )
    )
    assert [column.tolist() for column in found.values()] == [
        [255],
        [2**32 - 1],
        [2**64 - 1],
        [-5],
        [0.25],
        [[7, 0, 0, 9]],
    ]


def test_null_is_read_as_0_whatever_lies_under_it() -> None:
    kind = "SimpleAggregateFunction(max, Nullable(UInt64))"
    found = parse_columns(
        block(a=(kind, bytes([0, 1, 0]) + struct.pack("<3Q", 5, 6, 7), 3), b=("UInt8", bytes([1, 2, 3]), 3))
    )
    assert (found["a"].tolist(), found["b"].tolist()) == ([5, 0, 7], [1, 2, 3])


def test_blocks_are_put_together_however_long_they_are() -> None:
    many = struct.pack("<200Q", *range(200))
    found = parse_columns(block(n=("UInt64", many, 200)) + block(n=("UInt64", struct.pack("<Q", 200), 1)))
    assert found["n"].tolist() == list(range(201))


def test_no_rows_and_no_answer() -> None:
    assert parse_columns(block(n=("UInt64", b"", 0), w=("UInt256", b"", 0)))["w"].shape == (0, 4)
    assert parse_columns(b"") == {}


def test_what_is_no_number_is_said_by_name() -> None:
    with pytest.raises(TypeError, match=r"column who is String"):
        parse_columns(block(who=("String", text("x"), 1)))
