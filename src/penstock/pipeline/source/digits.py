"""Parse decimal numbers in a byte buffer, many at a time.

Eight digits are loaded as one 64-bit word and combined by multiplication, so a number costs a few vector
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
"""Bytes needed before the first and after the last number, so that a whole word can be loaded."""

MAX_DIGITS = 15

_COMMA = ord(",")

_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_U8 = np.uint64(8)
_LOW_BYTE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [(1 << 64) - 1], dtype=np.uint64)


def as_words(data: Bytes) -> Words:
    """Return a view of the buffer as one 64-bit little-endian word per byte offset. Copies nothing."""
    return np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def low_bytes(words: Words, length: Integers) -> Words:
    """Return the first `length` (at most 8) bytes of each word, with the other bytes cleared."""
    masked: Words = words & _LOW_BYTE_MASKS[length]
    return masked


def parse_numbers(words: Words, start: Integers, end: Integers) -> tuple[Integers, Flags]:
    """Return the unsigned numbers at [start, end), and which of them are valid: 1 to 15 digits only."""
    length = end - start
    valid_length = (length >= 1) & (length <= MAX_DIGITS)
    safe_length = np.where(valid_length, length, 1)
    value, only_digits = _parse_eight_digits(words, end, np.minimum(safe_length, 8))
    if np.any(safe_length > 8):
        high, high_only_digits = _parse_eight_digits(words, end - 8, np.maximum(safe_length - 8, 0))
        value = value + high * 100_000_000
        only_digits &= high_only_digits
    return value.astype(np.int64), valid_length & only_digits


def parse_number_lists(
    data: Bytes, words: Words, start: Integers, end: Integers
) -> tuple[Integers, Integers, Flags]:
    """Parse the comma-separated numbers in the texts at [start, end).

    Returns how many numbers each text holds, all numbers in order, and which texts are valid (hold nothing
    else). An empty text is valid and holds none. The texts must be in the order of the buffer.
    """
    counts = np.zeros(len(start), dtype=np.int64)
    valid_texts = np.ones(len(start), dtype=np.bool_)
    non_empty = np.flatnonzero(end > start)
    if not len(non_empty):
        return counts, np.zeros(0, dtype=np.int64), valid_texts
    start, end = start[non_empty], end[non_empty]
    commas = np.flatnonzero(data == _COMMA)
    first_comma, end_comma = np.searchsorted(commas, start), np.searchsorted(commas, end)
    count = end_comma - first_comma + 1
    text_index = np.repeat(np.arange(len(non_empty)), count)
    index_in_text = np.arange(len(text_index)) - (np.cumsum(count) - count)[text_index]
    comma = first_comma[text_index] + index_in_text
    padded = np.append(commas, 0)
    number_start = np.where(index_in_text == 0, start[text_index], padded[np.maximum(comma - 1, 0)] + 1)
    is_last = index_in_text == count[text_index] - 1
    number_end = np.where(is_last, end[text_index], padded[np.minimum(comma, len(commas))])
    values, valid_numbers = parse_numbers(words, number_start, number_end)
    valid_texts[non_empty[text_index[~valid_numbers]]] = False
    counts[non_empty] = count
    return counts, values, valid_texts


def _parse_eight_digits(words: Words, end: Integers, length: Integers) -> tuple[Integers, Flags]:
    # Load the word that ends where the number ends; bytes before the number become leading zeros.
    word = words[end - 8]
    shift = (_U8 * (np.uint64(8) - length.astype(np.uint64))) & np.uint64(63)
    mask = np.where(length == 0, np.uint64(0), ~np.uint64(0) << shift)
    word = (word & mask) | (_ZEROS & ~mask)
    only_digits = ((word & _HIGH) == _ZEROS) & (((word + _SIXES) & _HIGH) == _ZEROS)
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561) >> _U8
    word = (word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    word = (word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32)
    return word.astype(np.int64), only_digits
