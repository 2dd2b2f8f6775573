"""Answers of nothing but numbers, read as arrays: the simple part of ClickHouse's Native format.

The driver would make an object of every number, which for ten thousand points takes longer than finding them,
and Arrow would add half as much again to what a broker weighs.
https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

_KINDS = {
    "UInt8": ("u1", 1),
    "UInt32": ("<u4", 1),
    "UInt64": ("<u8", 1),
    "UInt256": ("<u8", 4),
    "Int64": ("<i8", 1),
    "Float64": ("<f8", 1),
}
"""How a number lies in memory, and of how many words it is made: the lowest first."""

_AGGREGATED = re.compile(r"SimpleAggregateFunction\(\w+, (.+)\)")
"""What a column of sums or maxima says of itself; it is plain numbers."""

_NULLABLE = re.compile(r"Nullable\((\w+)\)")


def parse_columns(answer: bytes) -> dict[str, Column]:
    """The columns by name, of all blocks together; none if the server sent none. A column of numbers that are
    several words has a row of words for each. NULL is read as 0."""
    blocks: dict[str, list[Column]] = {}
    at = 0
    while at < len(answer):
        count, at = _length(answer, at)
        rows, at = _length(answer, at)
        for _ in range(count):
            name, at = _text(answer, at)
            kind, at = _text(answer, at)
            stored = _AGGREGATED.sub(r"\1", kind)
            plain = _NULLABLE.sub(r"\1", stored)
            if plain not in _KINDS:
                raise TypeError(f"column {name} is {kind}; known are {', '.join(_KINDS)}")
            form, words = _KINDS[plain]
            null = None
            if plain != stored:
                null = np.frombuffer(answer, "?", rows, at)
                at += rows
            values = np.frombuffer(answer, form, rows * words, at)
            at += values.nbytes
            if null is not None and null.any():
                values = np.where(null, values.dtype.type(0), values)
            blocks.setdefault(name, []).append(values if words == 1 else values.reshape(rows, words))
    return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in blocks.items()}


def _length(answer: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; and where what follows it begins."""
    value = shift = 0
    while True:
        byte = answer[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _text(answer: bytes, at: int) -> tuple[str, int]:
    length, at = _length(answer, at)
    return answer[at : at + length].decode(), at + length
