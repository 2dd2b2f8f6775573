"""The period of a report: what may be asked for, and which tier answers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidRequest
from penstock.pipeline.capacity.period import Period, read_moment, read_period
from penstock.warehouse.tiers import HOUR, MINUTE

NOW = datetime(2026, 11, 15, 12, 34, 56, tzinfo=UTC)


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]


def asked(*args: object, **more: object) -> Period:
    return read_period(*args, **more, now_s=NOW.timestamp())  # type: ignore[arg-type]


def test_days_are_counted_back_to_midnight() -> None:
    period = asked("30d")
    assert (period.start_s, period.end_s) == (at(2026, 10, 16), at(2026, 11, 15, 12, 34, 56))
    assert len(period.days) == 30
    assert (period.days[0], period.days[-1]) == (at(2026, 10, 16), at(2026, 11, 14)), "today is not over"


def test_hours_are_counted_back_to_an_hour() -> None:
    assert asked("48h").start_s == at(2026, 11, 13, 12)


def test_a_start_and_an_end_win_over_the_length() -> None:
    period = asked("30d", read_moment("2026-09-01T10:30"), read_moment("2026-10-01"))
    assert (period.start_s, period.end_s) == (at(2026, 9, 1, 10), at(2026, 10, 1))
    assert (period.days[0], period.days[-1]) == (at(2026, 9, 2), at(2026, 9, 30))


def test_an_end_within_an_hour_takes_the_whole_hour() -> None:
    assert asked("1d", None, read_moment("2026-11-01T10:01")).end_s == at(2026, 11, 1, 11)
    assert asked("1d", None, read_moment("2026-11-15T12:01")).end_s == int(NOW.timestamp()), "it is not over"


def test_an_end_in_the_future_is_now() -> None:
    assert asked("1d", None, read_moment("2030-01-01")).end_s == int(NOW.timestamp())


def test_the_finest_tier_that_holds_all_of_it_is_read() -> None:
    assert asked("30d").tier is MINUTE
    assert asked("40d").tier is HOUR
    old = asked("1d", read_moment("2026-08-01"), read_moment("2026-08-03"))
    assert old.tier is HOUR, "minutes from that time are forgotten"


def test_a_period_within_one_day_has_no_whole_day() -> None:
    assert len(asked("2h").days) == 0


@pytest.mark.parametrize("length", ["", "30", "d", "0d", "-3d", "1y", "1.5d", "30 d"])
def test_what_is_no_length_is_refused_with_examples(length: str) -> None:
    with pytest.raises(InvalidRequest, match="30d"):
        asked(length)


def test_a_period_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="before it ends"):
        asked("30d", read_moment("2026-10-01"), read_moment("2026-09-01"))
    with pytest.raises(InvalidRequest, match="yesterday"):
        read_moment("yesterday")
