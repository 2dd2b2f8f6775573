"""The delay before a retry, and the URLs of brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import ClientSettings
from penstock.client.http.transport import Transport, retry_delay_s

jitters = st.floats(0, 1)


@given(st.integers(2, 100_000), jitters)
def test_the_backoff_grows_to_its_maximum_and_is_fully_random(attempt: int, jitter: float) -> None:
    settings = ClientSettings(retry_delay_s=0.1, retry_backoff=2, max_retry_delay_s=30)
    backoff_s = min(0.1 * 2 ** min(attempt - 2, 20), 30)
    assert retry_delay_s(attempt, settings, None, jitter) == pytest.approx(backoff_s * jitter)


def test_retries_after_the_same_retry_after_spread_further_with_each_attempt() -> None:
    def spread_s(attempt: int) -> float:
        return retry_delay_s(attempt, ClientSettings(), 1, 1) - retry_delay_s(attempt, ClientSettings(), 1, 0)

    assert [spread_s(attempt) for attempt in (2, 5, 8, 12)] == pytest.approx([0.25, 0.8, 6.4, 29])


@given(st.integers(2, 40), st.floats(0, 20), jitters)
def test_a_retry_is_never_earlier_than_retry_after(attempt: int, retry_after_s: float, jitter: float) -> None:
    assert retry_delay_s(attempt, ClientSettings(), retry_after_s, jitter) >= retry_after_s
    assert retry_delay_s(attempt, ClientSettings(), retry_after_s, jitter) <= max(retry_after_s * 1.25, 30)


def test_max_retry_delay_bounds_retry_after() -> None:
    assert retry_delay_s(2, ClientSettings(max_retry_delay_s=5), 3600, 0) == 5


def test_retry_after_may_be_ignored() -> None:
    assert retry_delay_s(2, ClientSettings(honor_retry_after=False), 20, 1) == 0.1


@pytest.mark.parametrize("urls", [[], "127.0.0.1:7480", ["http://a", "b"], "http://a/?x=1", "http://"])
def test_an_invalid_broker_url_is_refused(urls: str | list[str]) -> None:
    with pytest.raises(ValueError, match="such as http://127"):
        Transport(urls, ClientSettings())
