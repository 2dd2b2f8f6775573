from __future__ import annotations

from penstock.warehouse.carry import carry_forward, grown_age
from penstock.warehouse.points import ABSENT, Before, Points
from penstock.warehouse.tiers import FINE
from penstock.warehouse.windows import Window

WINDOW = Window(start_s=100, end_s=120, step_s=5, tier=FINE, now_s=119.0)


def one_point(at_s: int, before: Before, seen_ms: int, **gauges: tuple[int, int]) -> Points:
    """A window with rows at one point: maximum and last value of each gauge."""
    columns = {"seen_ms": [seen_ms]}
    for name, (highest, last) in gauges.items():
        columns |= {f"{name}_max": [highest], f"{name}_last": [last]}
    return Points({at_s: 0}, columns, before)


def test_the_last_value_is_carried_and_never_the_maximum() -> None:
    found = carry_forward(WINDOW, ["depth"], one_point(105, Before({"depth": None}), 107_000, depth=(500, 2)))
    assert found.highest["depth"] == [None, 500, 2, 2]
    assert found.last["depth"] == [None, 2, 2, 2]
    assert found.carried == [False, False, True, True]


def test_the_state_before_the_window_seeds_it() -> None:
    before = Before({"depth": 7, "limit": 3}, 50_000)
    points = one_point(110, before, 111_000, depth=(1, 0), limit=(ABSENT, ABSENT))
    found = carry_forward(WINDOW, ["depth", "limit"], points)
    assert found.last["depth"] == [7, 7, 0, 0]
    assert found.last["limit"] == [3, 3, 3, 3]
    assert found.carried == [True, True, False, True]
    assert found.seen_ms == [50_000, 50_000, 111_000, 111_000]


def test_a_point_with_counters_only_carries_its_gauges() -> None:
    points = one_point(105, Before({"depth": 4}, 90_000), ABSENT, depth=(ABSENT, ABSENT))
    found = carry_forward(WINDOW, ["depth"], points)
    assert (found.last["depth"], found.carried) == ([4] * 4, [True] * 4)


def test_a_window_without_rows_is_what_was_before_it() -> None:
    nothing = Points({}, {"seen_ms": [], "depth_max": [], "depth_last": []}, Before({"depth": 4}, 90_000))
    found = carry_forward(WINDOW, ["depth"], nothing)
    assert (found.highest["depth"], found.carried, found.seen_ms) == ([4] * 4, [True] * 4, [90_000] * 4)


def test_the_age_of_a_queue_that_holds_something_grows_with_the_clock() -> None:
    assert grown_age(1_000, depth=3, seen_ms=50_000, until_s=60.0) == 11_000
    assert grown_age(0, depth=0, seen_ms=50_000, until_s=60.0) == 0
    assert grown_age(1_000, depth=None, seen_ms=50_000, until_s=60.0) == 1_000
    assert grown_age(None, depth=3, seen_ms=50_000, until_s=60.0) is None
    assert grown_age(1_000, depth=3, seen_ms=70_000, until_s=60.0) == 1_000
