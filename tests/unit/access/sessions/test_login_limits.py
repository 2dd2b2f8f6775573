"""How often an address may try to log in."""

from __future__ import annotations

import pytest

from penstock.access.sessions.login_limits import MAX_ADDRESSES, MAX_ATTEMPTS, LoginLimits
from penstock.errors import TooManyLogins


def test_30_logins_at_once_and_then_one_every_two_seconds() -> None:
    now_s = 100.0
    limits = LoginLimits(monotonic=lambda: now_s)
    for _ in range(MAX_ATTEMPTS):
        limits.check("192.0.2.1")
    for _ in range(3):
        with pytest.raises(TooManyLogins) as caught:
            limits.check("192.0.2.1")
        assert caught.value.retry_after_s == pytest.approx(2)
    limits.check("192.0.2.2")
    now_s += 2
    limits.check("192.0.2.1")
    with pytest.raises(TooManyLogins):
        limits.check("192.0.2.1")
    now_s += 60
    for _ in range(MAX_ATTEMPTS):
        limits.check("192.0.2.1")


def test_memory_is_bounded() -> None:
    limits = LoginLimits(monotonic=lambda: 0.0)
    for number in range(MAX_ADDRESSES + 10):
        limits.check(str(number))
    assert len(limits._full_at_s) == MAX_ADDRESSES
