"""Numbers that travel together in one column: the highest of them wins, and a maximum is cheap.

A gauge's last value lies under the moment of its observation, so that the maximum of several is the newest.
Percentiles lie under the number of samples they speak for, so that the maximum is the one that speaks for the
most. Both are a `UInt256`; 0 stands for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.warehouse.series.native_format import Column

TYPE = "SimpleAggregateFunction(max, UInt256)"
EMPTY = "toUInt256(0)"
_WORD = 64


def pack_observation(value: str, at_s: str, seen_id: str) -> str:
    """A value seen in the bucket that starts at `at_s`; within it the order of the stream decides."""
    return f"{_up(at_s, 2)} + {_up(seen_id, 1)} + {value}"


def unpack_observed_value(packed: str, absent: str) -> str:
    """The value of an observation, or `absent` if there is none."""
    return f"if({packed} = 0, {absent}, toInt64({packed}))"


def pack_percentiles(count: str, found: Sequence[str]) -> str:
    """Percentiles (three at most) of so many samples, in hundredths: nobody is shown more of them."""
    hundredths = [f"toUInt64(round(toFloat64({value}) * 100))" for value in found]
    lower = [_up(value, place) for place, value in enumerate(hundredths)]
    return f"if({count} = 0, {EMPTY}, {' + '.join((_up(count, 3), *lower))})"


def unpack_percentiles_count(packed: str) -> str:
    """How many samples the percentiles speak for."""
    return f"toUInt64(bitShiftRight({packed}, {3 * _WORD}))"


def word(column: Column, place: int) -> Column:
    """What lies at one place of every number that was read: an observation's value at 0, percentiles at 0 to
    2, the number of their samples at 3."""
    return column[:, place].astype(np.int64)


def is_nothing(column: Column) -> Column:
    return np.logical_not(column.any(axis=1))


def _up(value: str, words: int) -> str:
    return f"bitShiftLeft(toUInt256({value}), {words * _WORD})" if words else f"toUInt256({value})"
