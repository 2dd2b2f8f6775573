from __future__ import annotations

from penstock.warehouse.carry import carry_forward, grown_age
from penstock.warehouse.points import Before
from penstock.warehouse.tiers import FINE
from penstock.warehouse.windows import Window

WINDOW = Window(start_s=100, end_s=120, step_s=5, tier=FINE, now_s=119.0)


def test_the_last_value_is_carried_and_never_the_maximum() -> None:
    points = {105: {"depth_max": 500, "depth_last": 2, "seen_ms": 107_000}}
    found = list(carry_forward(WINDOW, ["depth"], points, Before({"depth": None}, None, None)))
    assert [(point.highest["depth"], point.last["depth"], point.carried) for point in found] == [
        (None, None, False),
        (500, 2, False),
        (2, 2, True),
        (2, 2, True),
    ]


def test_the_state_before_the_window_seeds_it() -> None:
    before = Before({"depth": 7, "limit": 3}, 50_000, None)
    points = {110: {"depth_max": 1, "depth_last": 0, "seen_ms": 111_000}}
    found = list(carry_forward(WINDOW, ["depth", "limit"], points, before))
    assert [point.last["depth"] for point in found] == [7, 7, 0, 0]
    assert [point.last["limit"] for point in found] == [3, 3, 3, 3]
    assert [point.carried for point in found] == [True, True, False, True]
    assert [point.seen_ms for point in found] == [50_000, 50_000, 111_000, 111_000]


def test_a_point_with_counters_only_carries_its_gauges() -> None:
    points = {105: {"enqueued": 3, "depth_max": None, "depth_last": None, "seen_ms": None}}
    found = list(carry_forward(WINDOW, ["depth"], points, Before({"depth": 4}, 90_000, None)))
    assert [(point.last["depth"], point.carried) for point in found] == [(4, True)] * 4


def test_the_age_of_a_queue_that_holds_something_grows_with_the_clock() -> None:
    assert grown_age(1_000, depth=3, seen_ms=50_000, until_s=60.0) == 11_000
    assert grown_age(0, depth=0, seen_ms=50_000, until_s=60.0) == 0
    assert grown_age(1_000, depth=None, seen_ms=50_000, until_s=60.0) == 1_000
    assert grown_age(None, depth=3, seen_ms=50_000, until_s=60.0) is None
    assert grown_age(1_000, depth=3, seen_ms=70_000, until_s=60.0) == 1_000
