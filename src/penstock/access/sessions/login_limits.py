"""Limit how often one address may try to log in, against guessing tokens and flooding the provider."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.errors import TooManyLogins

MAX_ATTEMPTS = 30
WINDOW_S = 60.0
MAX_ADDRESSES = 10_000


class LoginLimits:
    """A bucket of attempts per address: 30 at once, and then one every two seconds.

    People of one office often share an address.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._full_at_s: dict[str, float] = {}
        """When the bucket of an address is full again, by the monotonic clock."""

    def check(self, address: str) -> None:
        """Count an attempt. Raises TooManyLogins if the address has none left."""
        now_s = self._monotonic()
        full_at_s = max(self._full_at_s.pop(address, now_s), now_s) + WINDOW_S / MAX_ATTEMPTS
        wait_s = full_at_s - now_s - WINDOW_S
        if wait_s > 1e-9:
            self._full_at_s[address] = full_at_s - WINDOW_S / MAX_ATTEMPTS
            raise TooManyLogins(wait_s)
        if len(self._full_at_s) >= MAX_ADDRESSES:
            del self._full_at_s[next(iter(self._full_at_s))]
        self._full_at_s[address] = full_at_s
