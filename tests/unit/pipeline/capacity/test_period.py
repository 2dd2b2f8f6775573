"""Tests of the period of a report: accepted formats, and the tier that is read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidRequest
from penstock.pipeline.capacity.period import Period, parse_period, parse_time
from penstock.warehouse.tiers import HOUR, MINUTE

NOW = datetime(2026, 11, 15, 12, 34, 56, tzinfo=UTC)


def seconds(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())


def parse(length: str, start: datetime | None = None, end: datetime | None = None) -> Period:
    return parse_period(length, start, end, now_s=NOW.timestamp())


def test_a_length_in_days_starts_at_midnight() -> None:
    period = parse("30d")
    assert (period.start_s, period.end_s) == (seconds(2026, 10, 16), seconds(2026, 11, 15, 12, 34, 56))
    assert len(period.days) == 30
    assert (period.days[0], period.days[-1]) == (seconds(2026, 10, 16), seconds(2026, 11, 14)), (
        "today is not over"
    )


def test_a_length_in_hours_starts_at_a_full_hour() -> None:
    assert parse("48h").start_s == seconds(2026, 11, 13, 12)


def test_a_start_and_an_end_override_the_length() -> None:
    period = parse("30d", parse_time("2026-09-01T10:30"), parse_time("2026-10-01"))
    assert (period.start_s, period.end_s) == (seconds(2026, 9, 1, 10), seconds(2026, 10, 1))
    assert (period.days[0], period.days[-1]) == (seconds(2026, 9, 2), seconds(2026, 9, 30))


def test_an_end_within_an_hour_includes_the_whole_hour() -> None:
    assert parse("1d", None, parse_time("2026-11-01T10:01")).end_s == seconds(2026, 11, 1, 11)
    assert parse("1d", None, parse_time("2026-11-15T12:01")).end_s == int(NOW.timestamp()), (
        "the current hour is not over"
    )


def test_an_end_in_the_future_means_now() -> None:
    assert parse("1d", None, parse_time("2030-01-01")).end_s == int(NOW.timestamp())


def test_the_finest_tier_that_retains_the_period_is_read() -> None:
    assert parse("30d").tier is MINUTE
    assert parse("40d").tier is HOUR
    old = parse("1d", parse_time("2026-08-01"), parse_time("2026-08-03"))
    assert old.tier is HOUR, "the minute tier no longer has that time"


def test_a_period_within_one_day_has_no_complete_day() -> None:
    assert len(parse("2h").days) == 0


@pytest.mark.parametrize("length", ["", "30", "d", "0d", "-3d", "1y", "1.5d", "30 d"])
def test_an_invalid_length_is_refused_with_examples(length: str) -> None:
    with pytest.raises(InvalidRequest, match="30d"):
        parse(length)


def test_a_period_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="before it ends"):
        parse("30d", parse_time("2026-10-01"), parse_time("2026-09-01"))
    with pytest.raises(InvalidRequest, match="yesterday"):
        parse_time("yesterday")
