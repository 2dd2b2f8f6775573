"""Rows of one metric summed up per dimensions and bucket.

Pure, and in one go or in steps: folding pieces of a stream and then their results gives what folding it whole
gives, except that the numbers inside a sample list may stand in another order. (Pieces whose ids interleave
would not: a row remembers one place in the stream for all its gauges.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.pipeline.source.digits import Integers
from penstock.pipeline.source.rows import ABSENT, Lists, Rows, encoded


def fold(rows: Rows, bucket_ms: int) -> Rows:
    """One row per dimensions and bucket: counters summed, gauges with maximum and last, samples gathered.

    The last value of a gauge is the one with the highest stream id among those observed in the bucket. Equal
    input gives equal output, in the same order.
    """
    if not len(rows):
        return rows
    bucket = rows.at_ms // bucket_ms * bucket_ms
    group, dimensions = _groups(rows, bucket, bucket_ms)
    order = _order(rows.seen_id, group)
    sizes = np.bincount(group)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    first = order[starts]

    def total(column: Integers) -> Integers:
        return np.add.reduceat(column[order], starts)

    def highest(column: Integers) -> Integers:
        return np.maximum.reduceat(column[order], starts)

    def last(column: Integers) -> Integers:
        ordered = column[order]
        place = np.where(ordered == ABSENT, -1, np.arange(len(ordered)))
        newest = np.maximum.reduceat(place, starts)
        return np.where(newest < 0, ABSENT, ordered[newest])

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
        samples={name: _gathered(lists, group, len(sizes)) for name, lists in rows.samples.items()},
    )


def _groups(rows: Rows, bucket: Integers, bucket_ms: int) -> tuple[Integers, list[pa.Array]]:
    """The group number of every row. Values become small codes, and the codes one number per row."""
    columns = [encoded(column) for column in rows.dimensions]
    earliest = bucket.min()
    code = _renumbered((bucket - earliest) // bucket_ms)
    for column in columns:
        values = len(column.dictionary)
        if values == 1:
            continue
        code = code * values + column.indices.to_numpy(zero_copy_only=False)
        # Renumbering keeps the product of many dimensions from overflowing.
        code = _renumbered(code)
    return code, columns


def _renumbered(codes: Integers) -> Integers:
    """The codes as numbers from 0 without gaps, in the same order."""
    most = int(codes.max()) + 1
    if most > 4 * len(codes) + 100_000:
        return np.unique(codes, return_inverse=True)[1].astype(np.int64)
    taken = np.zeros(most, dtype=np.int64)
    taken[codes] = 1
    numbers: Integers = (np.cumsum(taken) - 1)[codes]
    return numbers


def _order(seen_id: Integers, group: Integers) -> npt.NDArray[np.intp]:
    """The rows by group, and within it by id."""
    if np.all(seen_id[1:] >= seen_id[:-1]):
        return _by_group(group)
    by_id = np.argsort(seen_id, kind="stable")
    return by_id[_by_group(group[by_id])]


def _by_group(group: Integers) -> npt.NDArray[np.intp]:
    # Small numbers are sorted without comparing them.
    small = len(group) and group.max() <= np.iinfo(np.uint16).max
    return np.argsort(group.astype(np.uint16) if small else group, kind="stable")


def _gathered(lists: Lists, group: Integers, groups: int) -> Lists:
    owner = np.repeat(group, lists.lengths)
    return Lists(np.bincount(owner, minlength=groups).astype(np.int64), lists.values[_by_group(owner)])
