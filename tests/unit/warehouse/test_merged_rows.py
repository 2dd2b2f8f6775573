"""Rows of the same bucket, put together: the same numbers as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.warehouse.series.merge import merged, selected
from penstock.warehouse.series.readings import Aggregate

ASKED = {
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


def number(words: tuple[int, ...]) -> int:
    return sum(word << (64 * place) for place, word in enumerate(words))


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_sums_and_maxima_are_those_of_all_rows_that_count(
    rows: list[tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], bool, bool]],
) -> None:
    rows.sort(key=lambda row: row[0])
    at = np.array([row[0] for row in rows], "<u4")
    columns = {
        "c_done": np.array([row[1] for row in rows], "<u8"),
        "c_late": np.array([row[2] for row in rows], "<u8"),
        "c_top": np.array([row[3] for row in rows], "<u8"),
        "c_last": np.array([row[4] for row in rows], "<u8"),
        "c_best": np.array([row[5] for row in rows], "<u8"),
        "when_0": np.array([row[6] for row in rows], "u1"),
        "when_1": np.array([row[7] for row in rows], "u1"),
    }
    buckets, found = merged(columns, at, ASKED)
    assert buckets.tolist() == sorted({row[0] for row in rows})
    for place, bucket in enumerate(buckets.tolist()):
        here = [row for row in rows if row[0] == bucket]
        assert found["done"][place] == sum(row[1] for row in here)
        assert found["late"][place] == sum(row[2] for row in here if row[6])
        assert found["top"][place] == max(row[3] for row in here)
        assert number(found["last"][place].tolist()) == max(number(row[4]) if row[6] else 0 for row in here)
        assert number(found["best"][place].tolist()) == max(number(row[5]) if row[7] else 0 for row in here)


def test_nothing_else_than_sums_and_maxima_is_put_together() -> None:
    with pytest.raises(KeyError, match="quantiles"):
        merged({"c_a": np.zeros(1)}, np.zeros(1), {"a": Aggregate("quantiles", "a")})


def test_what_is_asked_for_are_the_columns_and_each_condition_once() -> None:
    assert selected(ASKED) == [
        "done AS c_done",
        "late AS c_late",
        "top AS c_top",
        "last AS c_last",
        "best AS c_best",
        "CAST(`group` = '', 'UInt8') AS when_0",
        "CAST(`group` = 'a', 'UInt8') AS when_1",
    ]
