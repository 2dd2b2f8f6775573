"""Decimal numbers out of a byte buffer, many at a time.

Eight digits are loaded as one 64-bit word and folded by multiplication, so a number costs a few vector
operations instead of an object.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

PADDING = 8
"""Bytes that must lie before the first and after the last number, so that a whole word can be loaded."""

MOST_DIGITS = 15

_COMMA = ord(",")

_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_U8 = np.uint64(8)
_KEEP_LOW = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [(1 << 64) - 1], dtype=np.uint64)


def words_of(data: Bytes) -> Words:
    """The buffer seen as a 64-bit little-endian word starting at every byte; no copy."""
    return np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def low_bytes(words: Words, length: Integers) -> Words:
    """The first `length` (at most 8) bytes of each word, the rest cleared."""
    kept: Words = words & _KEEP_LOW[length]
    return kept


def parse(words: Words, start: Integers, end: Integers) -> tuple[Integers, Flags]:
    """The unsigned numbers at [start, end), and which of them are one: 1 to 15 digits and nothing else."""
    length = end - start
    valid = (length >= 1) & (length <= MOST_DIGITS)
    safe = np.where(valid, length, 1)
    value, good = _eight(words, end, np.minimum(safe, 8))
    if np.any(safe > 8):
        high, high_good = _eight(words, end - 8, np.maximum(safe - 8, 0))
        value = value + high * 100_000_000
        good &= high_good
    return value.astype(np.int64), valid & good


def parse_lists(
    data: Bytes, words: Words, start: Integers, end: Integers
) -> tuple[Integers, Integers, Flags]:
    """The comma-separated numbers in the texts at [start, end): how many each has, all of them, and which
    texts hold nothing else. An empty text holds none; texts must be in the buffer's order."""
    counts = np.zeros(len(start), dtype=np.int64)
    usual = np.ones(len(start), dtype=np.bool_)
    filled = np.flatnonzero(end > start)
    if not len(filled):
        return counts, np.zeros(0, dtype=np.int64), usual
    start, end = start[filled], end[filled]
    commas = np.flatnonzero(data == _COMMA)
    first, after = np.searchsorted(commas, start), np.searchsorted(commas, end)
    count = after - first + 1
    owner = np.repeat(np.arange(len(filled)), count)
    within = np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
    comma = first[owner] + within
    padded = np.append(commas, 0)
    number_start = np.where(within == 0, start[owner], padded[np.maximum(comma - 1, 0)] + 1)
    number_end = np.where(within == count[owner] - 1, end[owner], padded[np.minimum(comma, len(commas))])
    values, good = parse(words, number_start, number_end)
    usual[filled[owner[~good]]] = False
    counts[filled] = count
    return counts, values, usual


def _eight(words: Words, end: Integers, length: Integers) -> tuple[Integers, Flags]:
    # The word that ends where the number ends; what lies before the number becomes leading zeros.
    word = words[end - 8]
    shift = (_U8 * (np.uint64(8) - length.astype(np.uint64))) & np.uint64(63)
    keep = np.where(length == 0, np.uint64(0), ~np.uint64(0) << shift)
    word = (word & keep) | (_ZEROS & ~keep)
    good = ((word & _HIGH) == _ZEROS) & (((word + _SIXES) & _HIGH) == _ZEROS)
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561) >> _U8
    word = (word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    word = (word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32)
    return word.astype(np.int64), good
