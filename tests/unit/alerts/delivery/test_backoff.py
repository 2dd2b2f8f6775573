"""The delays between attempts to deliver a notice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.alerts.delivery.backoff import DAY_S, Backoff
from penstock.alerts.delivery.outbound import parse_retry_after


def test_the_attempts_take_about_a_day() -> None:
    backoff = Backoff(jitter=0)
    delays = [backoff.next_delay_s(attempts) for attempts in range(1, 40)]
    until_failed = [delay for delay in delays if delay is not None]
    assert delays[0] == 5
    assert delays[1] == 10
    assert len(until_failed) == backoff.max_attempts - 1
    assert 0.9 * DAY_S < sum(until_failed) < 1.1 * DAY_S


def test_equal_failures_get_different_delays_near_the_nominal_one() -> None:
    delays = {Backoff().next_delay_s(5) or 0 for _ in range(50)}
    assert len(delays) > 1
    assert all(80 * 0.8 <= delay <= 80 * 1.2 for delay in delays)


def test_a_longer_delay_of_the_receiver_counts_up_to_a_day() -> None:
    backoff = Backoff(jitter=0)
    assert backoff.next_delay_s(1, 300) == 300
    assert backoff.next_delay_s(1, 1) == 5
    assert backoff.next_delay_s(1, 1e12) == DAY_S


def test_the_last_attempt_has_no_successor_whatever_the_receiver_asks_for() -> None:
    assert Backoff(max_attempts=3).next_delay_s(3, 10) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 120.0),
        ("-5", 0.0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(text: str, expected: float | None) -> None:
    assert parse_retry_after(text, datetime(2026, 3, 1, 12, tzinfo=UTC)) == expected
