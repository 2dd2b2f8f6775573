"""A steady leak is found whatever its noise; noise, sawtooths and single steps are no leak."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from soak.trend import MAX_POINTS, Bound, Trend, Verdict, judge, theil_sen_slope, thin_out

MINUTE_S = 60.0
WINDOW_S = 20 * MINUTE_S
STEP_S = 5.0

Shape = Callable[[float], float]
"""The value of a series at a time, in seconds."""


def judged(shape: Shape, bound: Bound | None = None, *, window_s: float = WINDOW_S) -> Trend:
    times_s = [number * STEP_S for number in range(int(window_s / STEP_S) + 1)]
    return judge(times_s, [shape(time_s) for time_s in times_s], bound or Bound(), 5 * MINUTE_S)


def noise(amplitude: float, seed: int) -> Shape:
    source = random.Random(seed)
    return lambda _: source.uniform(-amplitude, amplitude)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("leak_per_minute", [1.0, 5.0])
def test_a_leak_is_found_under_noise_of_a_fifth_of_the_value(leak_per_minute: float, seed: int) -> None:
    shake = noise(20, seed)
    trend = judged(lambda time_s: 100 + leak_per_minute * time_s / MINUTE_S + shake(time_s))
    assert trend.verdict is Verdict.GROWING
    assert trend.growth == pytest.approx(leak_per_minute * 20, rel=0.5)


def test_a_leak_in_small_steps_is_found() -> None:
    trend = judged(lambda time_s: 10 + time_s // (2 * MINUTE_S))
    assert trend.verdict is Verdict.GROWING


def test_a_leak_below_a_sawtooth_is_found() -> None:
    trend = judged(lambda time_s: 50 + time_s / MINUTE_S % 3 * 20 + 2 * time_s / MINUTE_S)
    assert trend.verdict is Verdict.GROWING


def test_a_leak_from_nothing_is_found() -> None:
    assert judged(lambda time_s: time_s / MINUTE_S).verdict is Verdict.GROWING


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_a_fifth_of_the_value_is_flat(seed: int) -> None:
    shake = noise(20, seed)
    assert judged(lambda time_s: 100 + shake(time_s)).verdict is Verdict.FLAT


@pytest.mark.parametrize("period_minutes", [0.7, 1.5, 3.1])
def test_a_sawtooth_is_flat(period_minutes: float) -> None:
    trend = judged(lambda time_s: 50 + time_s / MINUTE_S % period_minutes * 40)
    assert trend.verdict is Verdict.FLAT


def test_outliers_and_a_single_late_step_are_flat() -> None:
    assert judged(lambda time_s: 1000 if time_s % 100 == 0 else 50).verdict is Verdict.FLAT
    assert judged(lambda time_s: 50 if time_s < 0.8 * WINDOW_S else 80).verdict is Verdict.FLAT


def test_a_falling_or_a_constant_series_is_flat() -> None:
    assert judged(lambda time_s: 1000 - time_s / 10).verdict is Verdict.FLAT
    assert judged(lambda time_s: 0).verdict is Verdict.FLAT


def test_growth_below_the_floor_is_flat() -> None:
    def shape(time_s: float) -> float:
        return 1 + time_s / WINDOW_S

    assert judged(shape, Bound(floor=0.9)).verdict is Verdict.GROWING
    assert judged(shape, Bound(floor=1.1)).verdict is Verdict.FLAT


def test_growth_by_design_is_bounded_by_its_rate() -> None:
    bound = Bound(per_minute=100, reason="rows are kept for days")
    assert judged(lambda time_s: 90 * time_s / MINUTE_S, bound).verdict is Verdict.DECLARED
    assert judged(lambda time_s: 110 * time_s / MINUTE_S, bound).verdict is Verdict.GROWING
    assert judged(lambda time_s: 500, bound).verdict is Verdict.FLAT


def test_a_short_series_is_not_judged() -> None:
    assert judged(lambda time_s: time_s, window_s=4 * MINUTE_S).verdict is Verdict.UNJUDGED
    assert judge([], [], Bound(), 0).verdict is Verdict.UNJUDGED
    assert judge([0, 1000], [0, 1000], Bound(), 0).verdict is Verdict.UNJUDGED


def test_the_slope_is_the_median_over_all_pairs() -> None:
    assert theil_sen_slope([0, 1, 2, 3], [0, 2, 4, 6]) == 2
    assert theil_sen_slope([0, 1, 2, 3], [0, 2, 4, 600]) == pytest.approx(100, rel=1)
    assert theil_sen_slope([1], [5]) == 0


def test_many_samples_are_thinned_out_to_medians() -> None:
    times_s, values = thin_out(list(range(1000)), [float(number) for number in range(1000)])
    assert len(values) <= MAX_POINTS
    assert times_s == values
    assert theil_sen_slope(times_s, values) == 1
