"""Merging the rows of a bucket: the same sums and maxima as computed row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.warehouse.series.merge import Aggregate, merge_rows, select_expressions

AGGREGATES = {
    "done": Aggregate("sum", "done"),
    "late": Aggregate("sum", "late", "`group` = ''"),
    "top": Aggregate("max", "top"),
    "last": Aggregate("max", "last", "`group` = ''"),
    "best": Aggregate("max", "best", "`group` = 'a'"),
}
NUMBER = st.integers(0, 2**64 - 1)
WORD = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])
ROW = st.tuples(
    st.integers(0, 6),
    st.integers(0, 1000),
    st.integers(0, 1000),
    NUMBER,
    st.tuples(WORD, WORD, WORD, WORD),
    st.tuples(WORD, WORD, WORD, WORD),
    st.booleans(),
    st.booleans(),
)


def number_of_words(words: tuple[int, ...]) -> int:
    """The number that consists of 64-bit words, lowest first."""
    return sum(word << (64 * index) for index, word in enumerate(words))


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_sums_and_maxima_cover_all_rows_that_satisfy_the_condition(
    rows: list[tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], bool, bool]],
) -> None:
    rows.sort(key=lambda row: row[0])
    buckets = np.array([row[0] for row in rows], "<u4")
    columns = {
        "c_done": np.array([row[1] for row in rows], "<u8"),
        "c_late": np.array([row[2] for row in rows], "<u8"),
        "c_top": np.array([row[3] for row in rows], "<u8"),
        "c_last": np.array([row[4] for row in rows], "<u8"),
        "c_best": np.array([row[5] for row in rows], "<u8"),
        "when_0": np.array([row[6] for row in rows], "u1"),
        "when_1": np.array([row[7] for row in rows], "u1"),
    }
    distinct, merged = merge_rows(columns, buckets, AGGREGATES)
    assert distinct.tolist() == sorted({row[0] for row in rows})
    for index, bucket in enumerate(distinct.tolist()):
        members = [row for row in rows if row[0] == bucket]
        assert merged["done"][index] == sum(row[1] for row in members)
        assert merged["late"][index] == sum(row[2] for row in members if row[6])
        assert merged["top"][index] == max(row[3] for row in members)
        last, best = (number_of_words(merged[name][index].tolist()) for name in ("last", "best"))
        assert last == max(number_of_words(row[4]) if row[6] else 0 for row in members)
        assert best == max(number_of_words(row[5]) if row[7] else 0 for row in members)


def test_only_sums_and_maxima_can_be_merged() -> None:
    with pytest.raises(KeyError, match="quantiles"):
        merge_rows({"c_a": np.zeros(1)}, np.zeros(1), {"a": Aggregate("quantiles", "a")})


def test_the_select_list_has_all_columns_and_each_condition_once() -> None:
    assert select_expressions(AGGREGATES) == [
        "done AS c_done",
        "late AS c_late",
        "top AS c_top",
        "last AS c_last",
        "best AS c_best",
        "CAST(`group` = '', 'UInt8') AS when_0",
        "CAST(`group` = 'a', 'UInt8') AS when_1",
    ]
