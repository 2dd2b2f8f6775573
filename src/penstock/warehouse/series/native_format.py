"""Parse numeric columns of ClickHouse's Native format into numpy arrays.

The driver would build a Python object for every number, which for ten thousand points takes longer than the
query itself. Arrow would increase a broker's memory by half.
https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

_NUMERIC_TYPES = {
    "UInt8": ("u1", 1),
    "UInt32": ("<u4", 1),
    "UInt64": ("<u8", 1),
    "UInt256": ("<u8", 4),
    "Int64": ("<i8", 1),
    "Float64": ("<f8", 1),
}
"""The numpy type of each ClickHouse type, and the number of words per value, lowest word first."""

_SIMPLE_AGGREGATE = re.compile(r"SimpleAggregateFunction\(\w+, (.+)\)")
"""The type of a column of sums or maxima. Its values are stored as plain numbers."""

_NULLABLE = re.compile(r"Nullable\((\w+)\)")


class InvalidNativeError(ValueError):
    """A response that is damaged or ends early: ClickHouse failed after it had started to send."""


def parse_columns(response: bytes) -> dict[str, Column]:
    """Return the columns by name, concatenated over all blocks; empty if the response has no block.

    A column of multi-word numbers is two-dimensional, with one row of words per value. NULL is read as 0.
    Raises InvalidNativeError for a damaged response, and TypeError for a column of another type.
    """
    try:
        return _parse_blocks(response)
    except (IndexError, ValueError, OverflowError) as error:
        raise InvalidNativeError(f"The response is not complete: {error}.") from error


def _parse_blocks(response: bytes) -> dict[str, Column]:
    blocks: dict[str, list[Column]] = {}
    offset = 0
    while offset < len(response):
        column_count, offset = _read_varint(response, offset)
        row_count, offset = _read_varint(response, offset)
        for _ in range(column_count):
            name, offset = _read_text(response, offset)
            type_name, offset = _read_text(response, offset)
            stored_type = _SIMPLE_AGGREGATE.sub(r"\1", type_name)
            plain_type = _NULLABLE.sub(r"\1", stored_type)
            if plain_type not in _NUMERIC_TYPES:
                raise TypeError(
                    f"column {name} has type {type_name}; supported types are {', '.join(_NUMERIC_TYPES)}"
                )
            dtype, words = _NUMERIC_TYPES[plain_type]
            is_null = None
            if plain_type != stored_type:
                is_null = np.frombuffer(response, "?", row_count, offset)
                offset += row_count
            values = np.frombuffer(response, dtype, row_count * words, offset)
            offset += values.nbytes
            if is_null is not None and is_null.any():
                values = np.where(is_null, values.dtype.type(0), values)
            blocks.setdefault(name, []).append(values if words == 1 else values.reshape(row_count, words))
    return {
        name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in blocks.items()
    }


def _read_varint(response: bytes, offset: int) -> tuple[int, int]:
    """Read an integer in groups of seven bits, lowest first. Return it and the offset after it."""
    value = shift = 0
    while True:
        byte = response[offset]
        value |= (byte & 0x7F) << shift
        offset += 1
        if byte < 0x80:
            return value, offset
        shift += 7


def _read_text(response: bytes, offset: int) -> tuple[str, int]:
    length, offset = _read_varint(response, offset)
    if offset + length > len(response):
        raise ValueError(f"a text of {length} bytes starts {len(response) - offset} bytes before the end")
    return response[offset : offset + length].decode(), offset + length
