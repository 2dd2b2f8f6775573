"""Validation of the client's settings."""

from __future__ import annotations

import pytest

from penstock.client import ClientSettings


@pytest.mark.parametrize(
    "invalid",
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
def test_an_invalid_setting_is_refused(invalid: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(invalid))):
        ClientSettings(**invalid)  # type: ignore[arg-type]  # the values are wrong on purpose
