from __future__ import annotations

import numpy as np

from penstock.warehouse.series.carry_forward import carry_forward, grown_age
from penstock.warehouse.series.last_known import Before
from penstock.warehouse.series.points import Points
from penstock.warehouse.series.readings import ABSENT
from penstock.warehouse.series.window import Window
from penstock.warehouse.tiers import FINE

WINDOW = Window(start_s=100, end_s=120, step_s=5, tier=FINE, now_s=119.0)


def one_point(at_s: int, before: Before, seen_ms: int, **gauges: tuple[int, int]) -> Points:
    """A window with rows at one point: maximum and last value of each gauge."""
    values = {"seen_ms": seen_ms}
    for name, (highest, last) in gauges.items():
        values |= {f"{name}_max": highest, f"{name}_last": last}
    place = WINDOW.buckets.index(at_s)
    columns = {name: np.full(len(WINDOW.buckets), ABSENT) for name in values}
    for name, value in values.items():
        columns[name][place] = value
    return Points(columns, before)


def test_the_last_value_is_carried_and_never_the_maximum() -> None:
    found = carry_forward(WINDOW, ["depth"], one_point(105, Before({"depth": None}), 107_000, depth=(500, 2)))
    assert found.highest["depth"].tolist() == [ABSENT, 500, 2, 2]
    assert found.last["depth"].tolist() == [ABSENT, 2, 2, 2]
    assert found.carried.tolist() == [False, False, True, True]


def test_the_state_before_the_window_seeds_it() -> None:
    before = Before({"depth": 7, "limit": 3}, 50_000)
    points = one_point(110, before, 111_000, depth=(1, 0), limit=(ABSENT, ABSENT))
    found = carry_forward(WINDOW, ["depth", "limit"], points)
    assert found.last["depth"].tolist() == [7, 7, 0, 0]
    assert found.last["limit"].tolist() == [3, 3, 3, 3]
    assert found.carried.tolist() == [True, True, False, True]
    assert found.seen_ms.tolist() == [50_000, 50_000, 111_000, 111_000]


def test_a_point_with_counters_only_carries_its_gauges() -> None:
    points = one_point(105, Before({"depth": 4}, 90_000), ABSENT, depth=(ABSENT, ABSENT))
    found = carry_forward(WINDOW, ["depth"], points)
    assert (found.last["depth"].tolist(), found.carried.tolist()) == ([4] * 4, [True] * 4)


def test_a_window_without_rows_is_what_was_before_it() -> None:
    nothing = np.full(len(WINDOW.buckets), ABSENT)
    columns = dict.fromkeys(("seen_ms", "depth_max", "depth_last"), nothing)
    found = carry_forward(WINDOW, ["depth"], Points(columns, Before({"depth": 4}, 90_000)))
    assert found.highest["depth"].tolist() == [4] * 4
    assert found.carried.tolist() == [True] * 4
    assert found.seen_ms.tolist() == [90_000] * 4


def test_the_age_of_a_queue_that_holds_something_grows_with_the_clock() -> None:
    ages, depths, seen = [1_000, 0, 1_000, ABSENT, 1_000], [3, 0, ABSENT, 3, 3], [50_000] * 4 + [70_000]
    grown = grown_age(np.array(ages), np.array(depths), np.array(seen), np.full(5, 60.0))
    assert grown.tolist() == [11_000, 0, 1_000, ABSENT, 1_000]
