"""Parsing of ClickHouse's Native format."""

from __future__ import annotations

import struct

import pytest

from penstock.warehouse.series.native_format import InvalidNativeError, parse_columns


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def block(**columns: tuple[str, bytes, int]) -> bytes:
    """A block of columns, given as type name, encoded values and row count."""
    rows = next(iter(columns.values()))[2]
    length = bytes([rows]) if rows < 0x80 else bytes([rows & 0x7F | 0x80, rows >> 7])
    encoded = [text(name) + text(type_name) + values for name, (type_name, values, _) in columns.items()]
    return bytes([len(columns)]) + length + b"".join(encoded)


def test_every_numeric_type_is_parsed() -> None:
    large = (7).to_bytes(8, "little") + bytes(16) + (9).to_bytes(8, "little")
    columns = parse_columns(
        block(
            a=("UInt8", bytes([255]), 1),
            b=("UInt32", struct.pack("<I", 2**32 - 1), 1),
            c=("UInt64", struct.pack("<Q", 2**64 - 1), 1),
            d=("Int64", struct.pack("<q", -5), 1),
            e=("Float64", struct.pack("<d", 0.25), 1),
            f=("SimpleAggregateFunction(max, UInt256)", large, 1),
        )
    )
    assert [column.tolist() for column in columns.values()] == [
        [255],
        [2**32 - 1],
        [2**64 - 1],
        [-5],
        [0.25],
        [[7, 0, 0, 9]],
    ]


def test_null_is_read_as_0_whatever_value_is_stored() -> None:
    type_name = "SimpleAggregateFunction(max, Nullable(UInt64))"
    columns = parse_columns(
        block(
            a=(type_name, bytes([0, 1, 0]) + struct.pack("<3Q", 5, 6, 7), 3), b=("UInt8", bytes([1, 2, 3]), 3)
        )
    )
    assert (columns["a"].tolist(), columns["b"].tolist()) == ([5, 0, 7], [1, 2, 3])


def test_blocks_of_any_length_are_concatenated() -> None:
    many = struct.pack("<200Q", *range(200))
    columns = parse_columns(block(n=("UInt64", many, 200)) + block(n=("UInt64", struct.pack("<Q", 200), 1)))
    assert columns["n"].tolist() == list(range(201))


def test_an_empty_block_and_an_empty_response() -> None:
    assert parse_columns(block(n=("UInt64", b"", 0), w=("UInt256", b"", 0)))["w"].shape == (0, 4)
    assert parse_columns(b"") == {}


def test_a_column_of_another_type_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"column name has type String"):
        parse_columns(block(name=("String", text("x"), 1)))


@pytest.mark.parametrize("removed_bytes", [1, 8, 12, 15])
def test_a_response_that_ends_early_is_refused(removed_bytes: int) -> None:
    response = block(number=("UInt64", struct.pack("<Q", 1), 1))
    with pytest.raises(InvalidNativeError, match="not complete"):
        parse_columns(response[:-removed_bytes])


def test_an_error_in_place_of_a_block_is_refused() -> None:
    with pytest.raises(InvalidNativeError, match="not complete"):
        parse_columns(
            block(n=("UInt64", struct.pack("<Q", 1), 1)) + b"Code: 241. DB::Exception: Memory limit"
        )
