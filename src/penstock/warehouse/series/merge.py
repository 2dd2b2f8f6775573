"""Aggregates over the rows of a bucket, and merging such rows here instead of in ClickHouse.

Nearly every closed bucket consists of one row, and then there is nothing to merge. Planning and running
twenty-five aggregates over such rows in ClickHouse takes longer than reading them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.warehouse.series.native_format import Column

ANY_ROW = "1"
"""The SQL condition that every row satisfies."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function over the rows that satisfy a condition. `template` wraps it in SQL."""

    function: str
    column: str
    condition: str = ANY_ROW
    template: str = "{}"

    @property
    def sql(self) -> str:
        if self.condition == ANY_ROW:
            return self.template.format(f"{self.function}({self.column})")
        name, bracket, levels = self.function.partition("(")
        return self.template.format(f"{name}If{bracket}{levels}({self.column}, {self.condition})")


def select_expressions(aggregates: Mapping[str, Aggregate]) -> list[str]:
    """Return the SELECT expressions that `merge_rows` needs: the columns and the conditions."""
    conditions = [
        f"CAST({condition}, 'UInt8') AS {name}" for condition, name in _condition_names(aggregates).items()
    ]
    return [*(f"{aggregate.column} AS c_{name}" for name, aggregate in aggregates.items()), *conditions]


def merge_rows(
    rows: Mapping[str, Column], buckets: Column, aggregates: Mapping[str, Aggregate]
) -> tuple[Column, dict[str, Column]]:
    """Return the distinct buckets, and the sums and maxima of each. `buckets`, one per row, is sorted."""
    condition_names = _condition_names(aggregates)
    satisfied = {condition: rows[name] != 0 for condition, name in condition_names.items()}
    always_satisfied = {condition: bool(flags.all()) for condition, flags in satisfied.items()}
    groups = _BucketGroups(buckets)
    functions = {"sum": groups.sum, "max": groups.max}
    merged = {}
    for name, aggregate in aggregates.items():
        column = rows[f"c_{name}"]
        condition = aggregate.condition
        if condition != ANY_ROW and not always_satisfied[condition]:
            column = np.where(_match_shape(satisfied[condition], column), column, column.dtype.type(0))
        merged[name] = functions[aggregate.function](column)
    return groups.buckets, merged


class _BucketGroups:
    """Rows grouped by bucket. Only buckets of several rows need to be merged."""

    def __init__(self, buckets: Column) -> None:
        is_first = np.append(True, buckets[1:] != buckets[:-1])
        self._all_single = bool(is_first.all())
        self._first_rows = np.flatnonzero(is_first)
        self.buckets = buckets[self._first_rows]
        lengths = np.diff(self._first_rows, append=len(buckets))
        self._multi_row_buckets = np.flatnonzero(lengths > 1)
        self._rows_to_merge = np.flatnonzero(np.repeat(lengths > 1, lengths))
        lengths = lengths[self._multi_row_buckets]
        self._group_numbers = np.repeat(np.arange(len(lengths)), lengths)
        self._group_starts = np.cumsum(lengths) - lengths

    def sum(self, column: Column) -> Column:
        if self._all_single:
            return column
        merged = column[self._first_rows]
        merged[self._multi_row_buckets] = np.add.reduceat(column[self._rows_to_merge], self._group_starts)
        return merged

    def max(self, column: Column) -> Column:
        if self._all_single:
            return column
        merged = column[self._first_rows]
        rows = column[self._rows_to_merge]
        if column.ndim == 1:
            merged[self._multi_row_buckets] = np.maximum.reduceat(rows, self._group_starts)
        else:  # the highest word is last and decides, then the one before it
            order = np.lexsort((*rows.T, self._group_numbers))
            merged[self._multi_row_buckets] = rows[order[np.append(self._group_starts[1:], len(rows)) - 1]]
        return merged


def _condition_names(aggregates: Mapping[str, Aggregate]) -> dict[str, str]:
    """Return a column name for each distinct condition."""
    conditions = dict.fromkeys(
        aggregate.condition for aggregate in aggregates.values() if aggregate.condition != ANY_ROW
    )
    return {condition: f"when_{number}" for number, condition in enumerate(conditions)}


def _match_shape(flags: Column, column: Column) -> Column:
    """Return the flags in the shape of a column, which may have several words per row."""
    return flags if column.ndim == 1 else flags[:, np.newaxis]
