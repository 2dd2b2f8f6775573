"""Time as text and numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import iso, iso_of, now_ms, to_utc

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2030, 1, 2, 3, 4, 5, 678_999, UTC), "2030-01-02T03:04:05.678Z"),
        (datetime(2030, 1, 2, 3, 4, 5, 0, UTC), "2030-01-02T03:04:05.000Z"),
        (datetime(2030, 1, 1, 1, 0, 0, 0, timezone(timedelta(hours=2))), "2029-12-31T23:00:00.000Z"),
    ],
)
def test_every_answer_writes_time_in_one_form(moment: datetime, text: str) -> None:
    assert iso(moment) == text


@given(MOMENTS)
def test_what_is_written_reads_back_to_the_millisecond(moment: datetime) -> None:
    read = datetime.fromisoformat(iso(moment))
    assert timedelta() <= moment - read < timedelta(milliseconds=1)


@given(MOMENTS)
def test_text_sorts_as_time_does(moment: datetime) -> None:
    assert iso(moment) < iso(moment + timedelta(milliseconds=1))


@given(MOMENTS)
def test_seconds_are_written_like_the_moment_they_are(moment: datetime) -> None:
    assert iso_of(moment.timestamp()) == iso(moment)


def test_a_clock_is_asked_each_time() -> None:
    times = iter([1.0, 2.5])
    assert [now_ms(lambda: next(times)), now_ms(lambda: next(times))] == [1_000, 2_500]


def test_seconds_become_a_moment_in_utc() -> None:
    assert to_utc(0.25) == datetime(1970, 1, 1, 0, 0, 0, 250_000, UTC)
