"""Gauge values that are carried forward to points without an observation."""

from __future__ import annotations

import numpy as np

from penstock.warehouse.series.carry_forward import carry_forward, extrapolate_age
from penstock.warehouse.series.last_known import LastKnown
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.window import SeriesWindow
from penstock.warehouse.tiers import FINE

WINDOW = SeriesWindow(start_s=100, end_s=120, step_s=5, tier=FINE, now_s=119.0)


def points_with_one_row(
    bucket_s: int, last_known: LastKnown, seen_ms: int, **gauges: tuple[int, int]
) -> Points:
    """Points of a window with rows in one bucket only: maximum and last value of each gauge."""
    values = {"seen_ms": seen_ms}
    for name, (highest, last) in gauges.items():
        values |= {f"{name}_max": highest, f"{name}_last": last}
    position = WINDOW.buckets.index(bucket_s)
    columns = {name: np.full(len(WINDOW.buckets), ABSENT) for name in values}
    for name, value in values.items():
        columns[name][position] = value
    return Points(columns, last_known)


def test_the_last_value_is_carried_and_never_the_maximum() -> None:
    points = points_with_one_row(105, LastKnown({"depth": None}), 107_000, depth=(500, 2))
    gauges = carry_forward(WINDOW, ["depth"], points)
    assert gauges.max["depth"].tolist() == [ABSENT, 500, 2, 2]
    assert gauges.last["depth"].tolist() == [ABSENT, 2, 2, 2]
    assert gauges.carried.tolist() == [False, False, True, True]


def test_values_known_before_the_window_are_carried_into_it() -> None:
    last_known = LastKnown({"depth": 7, "limit": 3}, 50_000)
    points = points_with_one_row(110, last_known, 111_000, depth=(1, 0), limit=(ABSENT, ABSENT))
    gauges = carry_forward(WINDOW, ["depth", "limit"], points)
    assert gauges.last["depth"].tolist() == [7, 7, 0, 0]
    assert gauges.last["limit"].tolist() == [3, 3, 3, 3]
    assert gauges.carried.tolist() == [True, True, False, True]
    assert gauges.seen_ms.tolist() == [50_000, 50_000, 111_000, 111_000]


def test_a_point_with_counters_only_carries_its_gauges() -> None:
    points = points_with_one_row(105, LastKnown({"depth": 4}, 90_000), ABSENT, depth=(ABSENT, ABSENT))
    gauges = carry_forward(WINDOW, ["depth"], points)
    assert (gauges.last["depth"].tolist(), gauges.carried.tolist()) == ([4] * 4, [True] * 4)


def test_a_window_without_rows_repeats_the_values_known_before_it() -> None:
    absent = np.full(len(WINDOW.buckets), ABSENT)
    columns = dict.fromkeys(("seen_ms", "depth_max", "depth_last"), absent)
    gauges = carry_forward(WINDOW, ["depth"], Points(columns, LastKnown({"depth": 4}, 90_000)))
    assert gauges.max["depth"].tolist() == [4] * 4
    assert gauges.carried.tolist() == [True] * 4
    assert gauges.seen_ms.tolist() == [90_000] * 4


def test_the_oldest_message_of_an_idle_queue_ages_with_the_clock() -> None:
    ages, depths, seen_ms = [1_000, 0, 1_000, ABSENT, 1_000], [3, 0, ABSENT, 3, 3], [50_000] * 4 + [70_000]
    extrapolated = extrapolate_age(np.array(ages), np.array(depths), np.array(seen_ms), np.full(5, 60.0))
    assert extrapolated.tolist() == [11_000, 0, 1_000, ABSENT, 1_000]
