from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.access.quotas.rate_bucket import RateBucket, SmoothedRate, share_of_limit

rates = st.floats(0, 1e6)


@example(limit=1.0, demands=[0.0, 1.0])  # the demands are exactly the limit
@given(limit=st.floats(1, 1e6), demands=st.lists(rates, min_size=1, max_size=6))
def test_shares_of_all_processes_stay_near_the_limit(limit: float, demands: list[float]) -> None:
    shares = [
        share_of_limit(limit, demand, demands[:number] + demands[number + 1 :])
        for number, demand in enumerate(demands)
    ]
    assert sum(shares) <= limit * 1.15 + 1e-6
    assert sum(shares) >= limit * 0.99
    assert all(share > 0 for share in shares)


def test_a_process_with_little_demand_gets_it_when_others_want_more_than_there_is() -> None:
    assert share_of_limit(100, 10, [500]) == pytest.approx(11)
    assert share_of_limit(100, 500, [10]) == pytest.approx(90)
    assert share_of_limit(100, 500, [500]) == 50


def test_processes_without_demand_share_the_rest() -> None:
    assert share_of_limit(100, 0, [40]) == 30
    assert share_of_limit(100, 40, [0]) == 70


def test_a_full_bucket_holds_the_share_of_one_second() -> None:
    bucket = RateBucket(limit=10, process_count=2)
    assert (bucket.rate, bucket.level) == (5, 5)
    assert bucket.fill()
    assert bucket.level == 5


def test_a_bucket_in_debt_says_how_long_it_takes_to_recover() -> None:
    bucket = RateBucket(limit=10, process_count=1)
    bucket.level -= 110
    assert not bucket.fill()
    assert 9 < bucket.refuse(1) <= 10


def test_measured_use_is_the_demand_without_what_was_refused() -> None:
    bucket = RateBucket(limit=10, process_count=1)
    for _ in range(100):
        bucket.demanded += 4
        bucket.refuse(1)
        bucket.measure(0.1)
    assert bucket.demand.per_second == pytest.approx(40, rel=0.01)
    assert bucket.used.per_second == pytest.approx(30, rel=0.01)


def test_a_smoothed_rate_falls_when_nothing_is_added() -> None:
    rate = SmoothedRate()
    rate.add(100, 1.0)
    before = rate.per_second
    rate.add(0, 1.0)
    assert 0 < rate.per_second < before
