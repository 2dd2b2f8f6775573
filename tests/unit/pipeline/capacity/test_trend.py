"""Tests of the trend line through daily peaks: robust, with an honest interval."""

from __future__ import annotations

import random

import pytest

from penstock.pipeline.capacity.trend import MIN_DAYS, fit_line

MONTH = range(28)


def test_a_straight_line_is_fitted_exactly() -> None:
    line = fit_line(MONTH, [20 + 1.5 * day for day in MONTH])
    assert line is not None
    assert (line.slope, line.low, line.high) == pytest.approx((1.5, 1.5, 1.5))
    assert line.level == pytest.approx(20 + 1.5 * 27)
    assert line.direction == "rising"


def test_quiet_weekends_do_not_change_the_slope() -> None:
    values = [20 + day - (15 if day % 7 in (5, 6) else 0) for day in MONTH]
    line = fit_line(MONTH, values)
    assert line is not None
    assert line.slope == pytest.approx(1)
    assert line.level == pytest.approx(47), "the line is that of the weekdays, which are the high days"


def test_one_outlier_does_not_change_the_line() -> None:
    values = [20.0 + day for day in MONTH]
    values[25] = 500
    line = fit_line(MONTH, values)
    assert line is not None
    assert line.slope == pytest.approx(1)
    assert line.level == pytest.approx(47)


def test_noise_around_a_level_is_flat() -> None:
    rng = random.Random(7)
    directions = [
        fitted.direction
        for _ in range(200)
        if (fitted := fit_line(MONTH, [50 + rng.gauss(0, 5) for _ in MONTH])) is not None
    ]
    assert len(directions) == 200
    # With an interval of 95 %, about one in twenty looks like a trend.
    assert directions.count("flat") / 200 >= 0.88


def test_the_interval_contains_the_true_slope() -> None:
    rng = random.Random(11)
    hits = 0
    for _ in range(200):
        line = fit_line(MONTH, [10 + 0.7 * day + rng.gauss(0, 4) for day in MONTH])
        assert line is not None
        hits += line.low <= 0.7 <= line.high
    assert 0.88 <= hits / 200 < 1


def test_a_falling_line_has_direction_falling() -> None:
    line = fit_line(MONTH, [90 - 2 * day for day in MONTH])
    assert line is not None
    assert line.direction == "falling"


@pytest.mark.parametrize("days", [0, 1, MIN_DAYS - 1])
def test_too_few_days_give_no_line(days: int) -> None:
    assert fit_line(range(days), [1.0] * days) is None


def test_two_weeks_are_enough() -> None:
    line = fit_line(range(MIN_DAYS), [float(day) for day in range(MIN_DAYS)])
    assert line is not None
    assert line.direction == "rising"
