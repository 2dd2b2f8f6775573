"""Sum the rows of one metric by dimensions and bucket.

A pure function that can run in one step or in several: folding parts of a stream and then folding the results
equals folding the whole stream, except for the order of the numbers inside a sample list. (This does not hold
for parts whose ids interleave, because a row keeps one stream id for all its gauges.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.pipeline.source.digits import Integers
from penstock.pipeline.source.rows import ABSENT, NumberLists, Rows, dictionary_encoded


def fold(rows: Rows, bucket_ms: int) -> Rows:
    """Return one row per dimensions and bucket: sums of counters, maximum and last of gauges, all samples.

    The last value of a gauge is the one with the highest stream id among those observed in the bucket. Equal
    input gives equal output, in the same order.
    """
    if not len(rows):
        return rows
    bucket = rows.at_ms // bucket_ms * bucket_ms
    group, dimensions = _number_groups(rows, bucket, bucket_ms)
    order = _sort_by_group_and_id(rows.seen_id, group)
    sizes = np.bincount(group)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    first = order[starts]

    def total(column: Integers) -> Integers:
        return np.add.reduceat(column[order], starts)

    def highest(column: Integers) -> Integers:
        return np.maximum.reduceat(column[order], starts)

    def last(column: Integers) -> Integers:
        ordered = column[order]
        index = np.where(ordered == ABSENT, -1, np.arange(len(ordered)))
        last_index = np.maximum.reduceat(index, starts)
        return np.where(last_index < 0, ABSENT, ordered[last_index])

    return Rows(
        dimensions=[column.take(pa.array(first)) for column in dimensions],
        at_ms=bucket[first],
        newest_ms=highest(rows.newest_ms),
        events=total(rows.events),
        seen_ms=last(rows.seen_ms),
        seen_id=last(np.where(rows.seen_ms == ABSENT, ABSENT, rows.seen_id)),
        counters={name: total(column) for name, column in rows.counters.items()},
        gauge_max={name: highest(column) for name, column in rows.gauge_max.items()},
        gauge_last={name: last(column) for name, column in rows.gauge_last.items()},
        samples={name: _gather_lists(lists, group, len(sizes)) for name, lists in rows.samples.items()},
    )


def _number_groups(rows: Rows, bucket: Integers, bucket_ms: int) -> tuple[Integers, list[pa.Array]]:
    """Return the group number of every row: values become small codes, and the codes one number per row."""
    columns = [dictionary_encoded(column) for column in rows.dimensions]
    earliest = bucket.min()
    code = _renumber((bucket - earliest) // bucket_ms)
    for column in columns:
        values = len(column.dictionary)
        if values == 1:
            continue
        code = code * values + column.indices.to_numpy(zero_copy_only=False)
        # Renumbering keeps the product of many dimensions from overflowing.
        code = _renumber(code)
    return code, columns


def _renumber(codes: Integers) -> Integers:
    """Return the codes as numbers from 0 without gaps, in the same order."""
    code_limit = int(codes.max()) + 1
    if code_limit > 4 * len(codes) + 100_000:
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)
    is_used = np.zeros(code_limit, dtype=np.int64)
    is_used[codes] = 1
    numbers: Integers = (np.cumsum(is_used) - 1)[codes]
    return numbers


def _sort_by_group_and_id(seen_id: Integers, group: Integers) -> npt.NDArray[np.intp]:
    """Return the row indexes sorted by group, and within a group by id."""
    if np.all(seen_id[1:] >= seen_id[:-1]):
        return _sort_by_group(group)
    by_id = np.argsort(seen_id, kind="stable")
    return by_id[_sort_by_group(group[by_id])]


def _sort_by_group(group: Integers) -> npt.NDArray[np.intp]:
    # NumPy sorts 16-bit numbers with radix sort, which is faster.
    fits_16_bits = len(group) and group.max() <= np.iinfo(np.uint16).max
    return np.argsort(group.astype(np.uint16) if fits_16_bits else group, kind="stable")


def _gather_lists(lists: NumberLists, group: Integers, group_count: int) -> NumberLists:
    value_group = np.repeat(group, lists.lengths)
    lengths = np.bincount(value_group, minlength=group_count).astype(np.int64)
    return NumberLists(lengths, lists.values[_sort_by_group(value_group)])
