"""Rows of the same bucket, put together here rather than by ClickHouse.

Nearly every bucket that has passed lies in one row, and then there is nothing to do: letting ClickHouse plan
and run twenty-five aggregates over such rows takes longer than reading them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.warehouse.series.native_format import Column
from penstock.warehouse.series.readings import ANY, Aggregate


def selected(aggregates: Mapping[str, Aggregate]) -> list[str]:
    """What to ask for so that `merged` can do the rest: the columns, and the conditions."""
    conditions = [
        f"CAST({condition}, 'UInt8') AS {name}" for condition, name in _conditions(aggregates).items()
    ]
    return [*(f"{found.column} AS c_{name}" for name, found in aggregates.items()), *conditions]


def merged(
    rows: Mapping[str, Column], at: Column, aggregates: Mapping[str, Aggregate]
) -> tuple[Column, dict[str, Column]]:
    """The buckets that the rows lie `at`, which is in order, and the sums and maxima of each."""
    conditions = _conditions(aggregates)
    holds = {condition: rows[name] != 0 for condition, name in conditions.items()}
    everywhere = {condition: bool(true.all()) for condition, true in holds.items()}
    buckets = _Buckets(at)
    ways = {"sum": buckets.sums, "max": buckets.maxima}
    found = {}
    for name, aggregate in aggregates.items():
        column = rows[f"c_{name}"]
        condition = aggregate.condition
        if condition != ANY and not everywhere[condition]:
            column = np.where(_beside(holds[condition], column), column, column.dtype.type(0))
        found[name] = ways[aggregate.function](column)
    return buckets.at, found


class _Buckets:
    """Where rows lie, and which of them have to be put together."""

    def __init__(self, at: Column) -> None:
        first = np.append(True, at[1:] != at[:-1])
        self._single = bool(first.all())
        self._first = np.flatnonzero(first)
        self.at = at[self._first]
        lengths = np.diff(self._first, append=len(at))
        self._several = np.flatnonzero(lengths > 1)
        self._rows = np.flatnonzero(np.repeat(lengths > 1, lengths))
        lengths = lengths[self._several]
        self._number = np.repeat(np.arange(len(lengths)), lengths)
        self._starts = np.cumsum(lengths) - lengths

    def sums(self, column: Column) -> Column:
        if self._single:
            return column
        found = column[self._first]
        found[self._several] = np.add.reduceat(column[self._rows], self._starts)
        return found

    def maxima(self, column: Column) -> Column:
        if self._single:
            return column
        found = column[self._first]
        rows = column[self._rows]
        if column.ndim == 1:
            found[self._several] = np.maximum.reduceat(rows, self._starts)
        else:  # the last word decides, then the one before it
            order = np.lexsort((*rows.T, self._number))
            found[self._several] = rows[order[np.append(self._starts[1:], len(rows)) - 1]]
        return found


def _conditions(aggregates: Mapping[str, Aggregate]) -> dict[str, str]:
    """A name for each condition."""
    conditions = dict.fromkeys(found.condition for found in aggregates.values() if found.condition != ANY)
    return {condition: f"when_{number}" for number, condition in enumerate(conditions)}


def _beside(rows: Column, column: Column) -> Column:
    """In the shape of a column that may have several words per row."""
    return rows if column.ndim == 1 else rows[:, np.newaxis]
