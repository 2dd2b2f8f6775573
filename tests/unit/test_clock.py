"""Conversion of times to text and numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import iso, iso_of, now_ms, to_utc

TIMESTAMPS = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (datetime(2030, 1, 2, 3, 4, 5, 678_999, UTC), "2030-01-02T03:04:05.678Z"),
        (datetime(2030, 1, 2, 3, 4, 5, 0, UTC), "2030-01-02T03:04:05.000Z"),
        (datetime(2030, 1, 1, 1, 0, 0, 0, timezone(timedelta(hours=2))), "2029-12-31T23:00:00.000Z"),
    ],
)
def test_a_timestamp_is_written_in_utc_with_milliseconds(timestamp: datetime, text: str) -> None:
    assert iso(timestamp) == text


@given(TIMESTAMPS)
def test_written_timestamps_read_back_to_the_millisecond(timestamp: datetime) -> None:
    parsed = datetime.fromisoformat(iso(timestamp))
    assert timedelta() <= timestamp - parsed < timedelta(milliseconds=1)


@given(TIMESTAMPS)
def test_written_timestamps_sort_by_time(timestamp: datetime) -> None:
    assert iso(timestamp) < iso(timestamp + timedelta(milliseconds=1))


@given(TIMESTAMPS)
def test_seconds_are_written_like_the_same_timestamp(timestamp: datetime) -> None:
    assert iso_of(timestamp.timestamp()) == iso(timestamp)


def test_now_reads_the_clock_on_every_call() -> None:
    times = iter([1.0, 2.5])
    assert [now_ms(lambda: next(times)), now_ms(lambda: next(times))] == [1_000, 2_500]


def test_seconds_convert_to_a_utc_timestamp() -> None:
    assert to_utc(0.25) == datetime(1970, 1, 1, 0, 0, 0, 250_000, UTC)
