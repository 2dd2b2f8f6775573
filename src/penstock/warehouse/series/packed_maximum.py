"""Several numbers packed into one `UInt256`, so that a cheap `max` selects them together.

A gauge's last value is packed below the time of its observation, so the maximum is the newest observation.
Percentiles are packed below the number of samples they cover, so the maximum covers the most samples. The
value 0 means empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.warehouse.series.native_format import Column

TYPE = "SimpleAggregateFunction(max, UInt256)"
EMPTY = "toUInt256(0)"
_WORD_BITS = 64

VALUE_WORD = 0
"""The word of an observation that holds the value."""

COUNT_WORD = 3
"""The word of percentiles that holds the number of samples; words 0 to 2 hold the percentiles."""


def pack_observation(value: str, bucket_s: str, stream_id: str) -> str:
    """SQL of an observation in the bucket starting at `bucket_s`; the stream id orders those of a bucket."""
    return f"{_shift(bucket_s, 2)} + {_shift(stream_id, 1)} + {value}"


def unpack_observed_value(packed: str, default: str) -> str:
    """SQL of an observation's value, or `default` if it is empty."""
    return f"if({packed} = 0, {default}, toInt64({packed}))"


def pack_percentiles(count: str, values: Sequence[str]) -> str:
    """SQL of at most three percentiles of `count` samples, in hundredths: the precision of responses."""
    hundredths = [f"toUInt64(round(toFloat64({value}) * 100))" for value in values]
    shifted = [_shift(value, word) for word, value in enumerate(hundredths)]
    return f"if({count} = 0, {EMPTY}, {' + '.join((_shift(count, COUNT_WORD), *shifted))})"


def unpack_percentiles_count(packed: str) -> str:
    """SQL of the number of samples that packed percentiles cover."""
    return f"toUInt64(bitShiftRight({packed}, {COUNT_WORD * _WORD_BITS}))"


def unpack_word(column: Column, word: int) -> Column:
    """Return one word of every packed value of a column."""
    return column[:, word].astype(np.int64)


def is_empty(column: Column) -> Column:
    """Return for each packed value whether it is empty."""
    return np.logical_not(column.any(axis=1))


def _shift(value: str, words: int) -> str:
    return f"bitShiftLeft(toUInt256({value}), {words * _WORD_BITS})" if words else f"toUInt256({value})"
