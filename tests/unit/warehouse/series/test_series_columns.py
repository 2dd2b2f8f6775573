import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.warehouse.series.json_text import UNKNOWN_FLAG
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.series_columns import (
    ColumnTree,
    Flags,
    Numbers,
    Timestamps,
    encode_columns,
    encode_points,
    to_points,
)

MAX_VALUE = 10**17

whole_numbers = st.one_of(st.just(ABSENT), st.integers(0, 12_000), st.integers(0, MAX_VALUE))
rows = st.lists(
    st.tuples(
        whole_numbers, whole_numbers, st.sampled_from([0, 1, UNKNOWN_FLAG]), st.integers(0, 2_000_000_000)
    ),
    min_size=1,
    max_size=30,
)


def build_columns(values: list[tuple[int, int, int, int]]) -> ColumnTree:
    counts, hundredths, flags, starts_s = (np.array(column, np.int64) for column in zip(*values, strict=True))
    waits = np.where(hundredths < 0, ABSENT, hundredths % 10**12 / 100)
    return {
        "timestamp": Timestamps(np.sort(starts_s)),
        "depth": Numbers(counts),
        "latency": {"avg": Numbers(waits, decimals=2), "max": Numbers(counts)},
        "complete": Flags(flags),
    }


@settings(deadline=None)
@given(rows)
def test_both_encoded_forms_decode_to_the_same_values(values: list[tuple[int, int, int, int]]) -> None:
    columns = build_columns(values)
    points = to_points(columns)
    assert json.loads(encode_points(columns, len(values))) == points
    decoded = json.loads(encode_columns(columns))
    assert list(decoded) == ["timestamp", "depth", "latency", "complete"]
    assert decoded["depth"] == [point["depth"] for point in points]
    assert decoded["latency"]["avg"] == [point["latency"]["avg"] for point in points]
    assert decoded["complete"] == [point["complete"] for point in points]
    assert decoded["timestamp"] == [point["timestamp"] for point in points]


@pytest.mark.parametrize(
    ("values", "decimals", "numbers"),
    [
        ([0, 7, 10_000, 123_456_789, ABSENT], 0, [0, 7, 10_000, 123_456_789, None]),
        ([0.0, 0.05, 12.5, 99_999.99, ABSENT], 2, [0.0, 0.05, 12.5, 99_999.99, None]),
        ([0.3333, 1.0], 4, [0.3333, 1.0]),
        ([ABSENT, ABSENT], 1, [None, None]),
    ],
)
def test_numbers_keep_their_value(values: list[float], decimals: int, numbers: list[float | None]) -> None:
    column = Numbers(np.array(values), decimals)
    assert json.loads(encode_columns({"n": column}))["n"] == numbers
    assert column.to_list() == numbers


def test_times_are_written_in_utc_with_milliseconds() -> None:
    starts_s = np.array([0, 86_399, 86_400, 1_793_000_000])
    assert json.loads(encode_columns({"t": Timestamps(starts_s)}))["t"] == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T23:59:59.000Z",
        "1970-01-02T00:00:00.000Z",
        "2026-10-26T07:33:20.000Z",
    ]
