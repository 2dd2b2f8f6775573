"""When a request is sent again, and after how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import ClientSettings
from penstock.client.http.transport import Transport, retry_delay_s

chances = st.floats(0, 1)


@given(st.integers(2, 100_000), chances)
def test_waits_grow_up_to_the_longest_and_all_of_them_is_left_to_chance(attempt: int, chance: float) -> None:
    settings = ClientSettings(retry_delay_s=0.1, retry_backoff=2, max_retry_delay_s=30)
    full = min(0.1 * 2 ** min(attempt - 2, 20), 30)
    assert retry_delay_s(attempt, settings, None, chance) == pytest.approx(full * chance)


def test_clients_that_were_sent_away_together_come_back_apart() -> None:
    """And the further apart, the more often they were sent away."""

    def spread(attempt: int) -> float:
        return retry_delay_s(attempt, ClientSettings(), 1, 1) - retry_delay_s(attempt, ClientSettings(), 1, 0)

    assert [spread(attempt) for attempt in (2, 5, 8, 12)] == pytest.approx([0.25, 0.8, 6.4, 29])


@given(st.integers(2, 40), st.floats(0, 20), chances)
def test_a_client_never_comes_back_earlier_than_it_was_asked_to(
    attempt: int, asked_s: float, chance: float
) -> None:
    assert retry_delay_s(attempt, ClientSettings(), asked_s, chance) >= asked_s
    assert retry_delay_s(attempt, ClientSettings(), asked_s, chance) <= max(asked_s * 1.25, 30)


def test_no_broker_can_ask_for_more_than_the_longest_wait() -> None:
    assert retry_delay_s(2, ClientSettings(max_retry_delay_s=5), 3600, 0) == 5


def test_what_the_broker_asks_for_may_be_ignored() -> None:
    assert retry_delay_s(2, ClientSettings(honor_retry_after=False), 20, 1) == 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_attempts": 0},
        {"retry_backoff": 0.5},
        {"retry_delay_s": -1},
        {"max_retry_time_s": -1},
        {"request_timeout_s": 0},
        {"queued_operation_timeout_s": 0},
        {"queued_operation_behavior": "hope"},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClientSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("urls", [[], "127.0.0.1:7480", ["http://a", "b"], "http://a/?x=1", "http://"])
def test_a_broker_has_a_url(urls: str | list[str]) -> None:
    with pytest.raises(ValueError, match="such as http://127"):
        Transport(urls, ClientSettings())
